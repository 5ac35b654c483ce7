"""verl_batch.py: an update of verl's actor on verl's batches, which computes once what the rollouts of a prompt share.

    python3 examples/python/verl_batch.py
    torchrun --nproc-per-node 4 examples/python/verl_batch.py                  # all processes share each batch
    torchrun --nproc-per-node 4 examples/python/verl_batch.py --context 2      # two groups, with half of the rows each

Neither verl nor Ray is needed. `Data` has verl's layout, and of a DataProto the members that are used here:

    batch             prompts [rows, P], filled up on the left; responses [rows, R], filled up on the right;
                      input_ids, attention_mask, position_ids [rows, P + R]; response_mask [rows, R], 0 for a tool's
                      words; old_log_probs, ref_log_prob, advantages [rows, R]
    non_tensor_batch  uid [rows]: equal for the rollouts of a prompt
    meta_info         temperature

`Actor` computes as verl does: padded rows, one after the other. `SharingActor` differs in two methods: how a mini-batch
is cut, and how the log-probabilities of a part are computed. The rest is an update as verl has it: the ratio is clipped
below and above, and once more for negative advantages; KL and entropy are added; and sums are divided by what
`loss_agg_mode` says.

Printed is how far log-probabilities, losses and gradients are from those of padded rows, and how many tokens each
computes. The model is small and random, and nothing is downloaded.
"""
import argparse
import os
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3Config

import fcpc
import fcpc.hf
from fcpc.torch import Attention

WORDS, ANSWERS = 48, 8
MODEL = Qwen3Config(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=16, sliding_window=16, use_sliding_window=True,
                    layer_types=["sliding_attention", "full_attention"], pad_token_id=0)


# --- batches ----------------------------------------------------------------------------------------------------------

@dataclass
class Data:
    """Rollouts as verl hands them to its actor."""
    batch: dict
    non_tensor_batch: dict
    meta_info: dict

    def __len__(self):
        return len(self.batch["responses"])

    def select_idxs(self, rows):
        return Data({name: x[rows] for name, x in self.batch.items()},
                    {name: x[np.asarray(rows)] for name, x in self.non_tensor_batch.items()}, self.meta_info)


def made(prompts=8, seed=0):
    """Rollouts of an agent: a turn, four words of a tool, and an answer. Every two rollouts have the same turn."""
    draw = random.Random(seed)

    def words(least, most):
        return [draw.randrange(3, WORDS) for _ in range(draw.randint(least, most))]
    rows = []
    for uid in range(prompts):
        prompt = words(10, 24)
        for turn in [words(4, 14) for _ in range(ANSWERS // 2)] * 2:
            answer = words(1, 16)
            rows.append((f"uid{uid}", prompt, turn + [3, 4, 5, 6] + answer,
                         [1] * len(turn) + [0] * 4 + [1] * len(answer)))
    uid, asked, answered, counted = zip(*rows)
    asked, seen = filled([x[::-1] for x in asked])
    asked, seen = asked.flip(1), seen.flip(1)
    answered, there = filled(answered)
    mask, response_mask = torch.cat([seen, there], 1), filled(counted)[0]
    uid, reward = np.array(uid, dtype=object), torch.tensor([draw.random() for _ in rows])
    return Data({"prompts": asked, "responses": answered, "input_ids": torch.cat([asked, answered], 1),
                 "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
                 "response_mask": response_mask, "advantages": advantages(reward, uid)[:, None] * response_mask},
                {"uid": uid}, {"temperature": 0.9})


def filled(rows):
    """(rows of equal lengths, where they are not filled up)"""
    found = [torch.tensor(row) for row in rows]
    fill = torch.nn.utils.rnn.pad_sequence
    return fill(found, True, 0), fill([torch.ones_like(row) for row in found], True, 0)


def advantages(reward, uid):
    """GRPO's: a reward among those of its prompt."""
    found = torch.empty_like(reward)
    for one in dict.fromkeys(uid):
        which = torch.as_tensor(uid == one)
        found[which] = (reward[which] - reward[which].mean()) / (reward[which].std() + 1e-6)
    return found


# --- the loss ---------------------------------------------------------------------------------------------------------

@dataclass
class Settings:
    """Those of verl's actor, by verl's names.

    per_micro_batch is how verl divides a loss. False: by the tokens or rows of the mini-batch on all processes
    (agg_loss of verl 0.10). True: by those of the micro-batch, whose loss then counts as its rows do
    (DataParallelPPOActor of verl 0.8, with use_dynamic_bsz).
    """
    ppo_mini_batch_size: int = 32
    ppo_max_token_len_per_gpu: int = 400
    ppo_epochs: int = 2
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.28
    clip_ratio_c: float = 3.0
    loss_agg_mode: str = "token-mean"
    entropy_coeff: float = 0.01
    kl_loss_coef: float = 0.05
    grad_clip: float = 1.0
    per_micro_batch: bool = False


def policy_loss(logp, old, advantage, s):
    """The clipped loss of each token. With a negative advantage it is at most clip_ratio_c times its size."""
    ratio = (logp - old).clamp(-20, 20).exp()
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - s.clip_ratio_low, 1 + s.clip_ratio_high))
    return torch.where(advantage < 0, torch.minimum(loss, -advantage * s.clip_ratio_c), loss)


def kl(logp, ref):
    """The estimate low_var_kl, or k3: never negative, with little variance."""
    far = (ref - logp).clamp(-20, 20)
    return (far.exp() - far - 1).clamp(-10, 10)


def aggregate(x, mask, mode, tokens, rows):
    """The sum over tokens that count, or over rows, divided by how many there are."""
    if mode == "token-mean":
        return (x * mask).sum() / tokens
    of_rows = (x * mask).sum(1)
    if mode == "seq-mean-token-mean":
        of_rows = of_rows / (mask.sum(1) + 1e-8)
    elif mode != "seq-mean-token-sum":
        raise ValueError(f"loss_agg_mode {mode}")
    return of_rows.sum() / rows


# --- the actor --------------------------------------------------------------------------------------------------------

class Actor:
    """Log-probabilities and updates, with padded rows in one process.

    model    a model of transformers
    cut      gives the rows of each micro-batch of a mini-batch; None: all rows are one
    steps    what each step of the optimizer had: (loss, gradients before they are clipped)
    tokens   how many tokens were computed
    real     how many of them are not padding
    """

    def __init__(self, model, settings, optimizer=None, cut=None):
        self.model, self.settings, self.optimizer, self.cut = model, settings, optimizer, cut
        self.context, self.groups = 1, 1
        self.steps, self.tokens, self.real = [], 0, 0

    def parts(self, data):
        """The micro-batches of a mini-batch: (rows, what `forward` takes for them)."""
        for rows in [list(range(len(data)))] if self.cut is None else self.cut(data):
            yield rows, data.select_idxs(rows)

    def forward(self, part, temperature):
        """(log-probabilities, entropies) of the responses' tokens, [rows, R]."""
        x = part.batch
        self.tokens += x["input_ids"].numel()
        self.real += int(x["attention_mask"].sum())
        logits = self.model(**{name: x[name] for name in ("input_ids", "attention_mask", "position_ids")},
                            use_cache=False).logits[:, -x["responses"].shape[1] - 1:-1]
        every = (logits / temperature).log_softmax(-1)
        there = x["attention_mask"][:, -x["responses"].shape[1]:].bool()
        return (every.gather(-1, x["responses"][..., None])[..., 0].masked_fill(~there, 0),
                -(every.exp() * every).sum(-1).masked_fill(~there, 0))

    def compute_log_prob(self, data):
        """Log-probabilities of the responses' tokens, in the order of the rows."""
        with torch.no_grad():
            found = [(rows, self.forward(part, data.meta_info["temperature"])[0]) for rows, part in self.parts(data)]
        every = torch.zeros(data.batch["responses"].shape)
        for rows, logp in found:
            every[rows] = logp
        return every

    def update_policy(self, data):
        """PPO's epochs over the mini-batches."""
        size = self.settings.ppo_mini_batch_size // self.groups
        for _ in range(self.settings.ppo_epochs):
            for first in range(0, len(data), size):
                self._step(data.select_idxs(list(range(first, min(first + size, len(data))))))

    def _step(self, mini):
        mask, whole = mini.batch["response_mask"], torch.zeros(())
        tokens, rows = self._everywhere(torch.tensor([mask.sum(), len(mini)])).tolist()
        self.optimizer.zero_grad()
        for which, part in self.parts(mini):
            logp, entropy = self.forward(part, mini.meta_info["temperature"])
            loss = self._loss({name: x[which] for name, x in mini.batch.items()}, logp, entropy, tokens, rows)
            loss.backward()
            whole += loss.detach()
        self._sum_gradients()
        self.steps.append((self._everywhere(whole).item(), [p.grad.clone() for p in self.model.parameters()]))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.grad_clip)
        self.optimizer.step()

    def _loss(self, x, logp, entropy, tokens, rows):
        """What these rows are of the loss of the mini-batch."""
        s, mask, share = self.settings, x["response_mask"], 1.0
        if s.per_micro_batch:
            share, tokens, rows = len(mask) / rows, mask.sum(), (mask.sum(1) > 0).sum()
        of = policy_loss(logp, x["old_log_probs"], x["advantages"], s) - s.entropy_coeff * entropy \
            + s.kl_loss_coef * kl(logp, x["ref_log_prob"])
        return share * aggregate(of, mask, s.loss_agg_mode, tokens, rows)

    def _everywhere(self, x):
        """The sum over the groups, each of which counts once."""
        return x

    def _sum_gradients(self):
        pass


class SharingActor(Actor):
    """The same on forests: what rows share is computed once, and the processes of a group share the work.

    model    a model with attn_implementation="fcpc"
    group    the processes that have the same rows; None: this process has them alone
    """

    def __init__(self, model, settings, optimizer=None, group=None, **plan):
        super().__init__(model, settings, optimizer)
        self.group, world = group, dist.get_world_size() if group is not None else 1
        self.context = 1 if group is None else group.size()
        self.groups = world // self.context
        self.prog = fcpc.hf.program(model, forest=True, cluster=fcpc.detect(ranks=1) if group is None
                                    else fcpc.detect(group), **plan)
        self.attn = Attention(self.prog, group=group)

    def forest(self, data):
        x = data.batch
        seen, there = x["attention_mask"].split([x["prompts"].shape[1], x["responses"].shape[1]], 1)
        return fcpc.forest(x["responses"], x["prompts"], mask=there, prompt_mask=seen)

    def parts(self, data):
        """Trees of at most so many tokens on each process, as verl cuts rows."""
        for part in self.prog.micro_batches(self.forest(data), tokens=self.settings.ppo_max_token_len_per_gpu):
            yield list(part.rollouts), part

    def forward(self, part, temperature):
        plan = self.prog.plan(part)
        self.tokens += len(part.tokens)
        logits = self.model(**fcpc.hf.inputs(self.attn, plan, part)).logits[0]
        more = {"plan": plan, "group": self.group, "temperature": temperature}
        return part.logprobs(logits, **more), part.entropy(logits, **more)

    def _everywhere(self, x):
        if self.group is None:
            return x
        dist.all_reduce(x)  # every process of a group has the whole sum of its rows
        return x / self.context

    def _sum_gradients(self):
        """Each process has the gradients of the tokens that it has computed."""
        for p in self.model.parameters() if self.group is not None else ():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)


# --- compared ---------------------------------------------------------------------------------------------------------

def model_of(seed, attention):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(MODEL, attn_implementation=attention)


def updated(kind, attention, data, settings, rows, **more):
    """An actor that has computed old_log_probs and ref_log_prob of these rows, and has been updated with them."""
    model, mine = model_of(0, attention), data.select_idxs(rows)
    reference = kind(model_of(1, attention), settings, **more)
    actor = kind(model, settings, torch.optim.SGD(model.parameters(), lr=0.5), **more)
    mine.batch["old_log_probs"] = actor.compute_log_prob(mine)
    mine.batch["ref_log_prob"] = reference.compute_log_prob(mine)
    actor.update_policy(mine)
    return actor, mine


def farthest(found, right):
    """The largest difference of two lists of tensors, relative to the largest value of each tensor."""
    return max(((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in zip(found, right))


def compare(settings, group=None):
    """How far old log-probabilities, losses and gradients are from those of padded rows in one process; and tokens that
    were computed: padded, without padding (as use_remove_padding does), and shared."""
    data = made()
    every = torch.arange(len(data))
    groups, number = (1, 0) if group is None else (dist.get_world_size() // group.size(),
                                                   dist.get_rank() // group.size())
    rows = every.view(-1, groups, settings.ppo_mini_batch_size // groups)[:, number].flatten()  # a part of each
    shared, mine = updated(SharingActor, fcpc.hf.NAME, data, settings, rows, group=group, block=16)
    padded, whole = updated(Actor, "eager", data, settings, every)
    return {"log-probabilities": farthest([mine.batch["old_log_probs"]], [whole.batch["old_log_probs"][rows]]),
            "losses": farthest(*[[torch.tensor([loss for loss, _ in x.steps])] for x in (shared, padded)]),
            "gradients": max(farthest(a, b) for (_, a), (_, b) in zip(shared.steps, padded.steps))
            }, padded.tokens, padded.real, int(shared._everywhere(torch.tensor(float(shared.tokens))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, help="how many processes share a batch; default: all")
    asked, group = parser.parse_args().context, None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        group = dist.new_subgroups(asked or dist.get_world_size())[0]
    for mode in "token-mean", "seq-mean-token-sum", "seq-mean-token-mean":
        apart, padded, real, shared = compare(Settings(loss_agg_mode=mode), group)
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"{mode:20}", *(f"{name} {x:.1e}" for name, x in apart.items()),
                  f"tokens {padded} padded, {real} without padding, {shared} shared", sep="  ", flush=True)
    if group is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
