"""grpo.py: TRL's GRPOTrainer, which computes once what the answers of a batch share, on all processes together.

    python3 examples/python/grpo.py
    torchrun --nproc-per-node 4 examples/python/grpo.py
    torchrun --nproc-per-node 4 examples/python/grpo.py --generate       # the model answers, instead of made answers

GRPO draws many answers to each prompt. TRL then computes each of them for itself, from the prompt's first token. Here
the answers of a batch are a forest: what several share is there once, and all processes compute it together, by a plan.

*What is changed.* One method does the computing, `_get_per_token_logps_and_entropies`: it takes a padded batch, and
gives a number for each token. It is replaced, and losses, clipping, rewards, advantages, logs and checkpoints stay
TRL's. Two more are changed a little. `_generate_single_turn` lets the model attend by itself, with its cache, while it
generates; and `_prepare_inputs` undoes TRL's shuffle of answers, which would part those of a prompt.

*Several processes.* In TRL each has answers of its own, and its loss is of these. So all processes' answers go into one
forest, and each reads those of its own back. Its loss then depends on what others have computed. The gradients of these
numbers are summed over the processes before they go back through the forest.

Printed is how far losses and gradients are from those of TRL's own trainer, for the same prompts and answers, and how
many tokens each computes. The model is small and random, and nothing is downloaded.
"""
import argparse
import os
import random
import tempfile

import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, PrinterCallback, Qwen3Config,
                          TrainerCallback)
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer

import fcpc
import fcpc.hf
from fcpc.torch import Attention

WORDS, PROMPT, ANSWERS = 48, 24, 4
MODEL = Qwen3Config(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=16, sliding_window=16, use_sliding_window=True,
                    layer_types=["sliding_attention", "full_attention"], pad_token_id=0, eos_token_id=2)


# --- the trainer ------------------------------------------------------------------------------------------------------

class Summed(torch.autograd.Function):
    """The same numbers in all processes, of which each makes a loss of its own: gradients are summed over them."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        if ctx.group is not None:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class SharingGRPO(GRPOTrainer):
    """GRPOTrainer, which computes shared tokens once.

    model   a model with attn_implementation="fcpc"
    plan    other arguments of fcpc.hf.program, such as {"block": 128}
    tokens  the most tokens that a process computes at once; None: it computes its part of a batch at once
    """

    def __init__(self, model, *args, plan=None, tokens=None, **kwargs):
        super().__init__(model, *args, **kwargs)
        if self.aux_loss_enabled:
            raise ValueError("the loss of a router (router_aux_loss_coef) is no sum over tokens")
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError("gradients are averaged by DDP here, and FSDP and DeepSpeed were not tried")
        self.group = dist.group.WORLD if self.accelerator.num_processes > 1 else None
        cluster = fcpc.detect(self.group) if self.group else fcpc.detect(ranks=1)
        self.prog = fcpc.hf.program(self.model, forest=True, cluster=cluster, **(plan or {}))
        self.attn, self.tokens = Attention(self.prog, group=self.group), tokens
        self.computed = self.rollout_tokens = 0

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, batch_size=None,
                                           compute_entropy=False, compute_aux_loss=False, **images):
        """As TRL's, of the last `logits_to_keep` tokens. All processes call it together."""
        unread = [name for name, value in images.items() if value is not None]
        if unread or compute_aux_loss:
            raise ValueError(f"a forest has tokens alone, and no {', '.join(unread) or 'loss of a router'}")
        accelerator, (rows, width) = self.accelerator, input_ids.shape
        ids, mask = (accelerator.gather(accelerator.pad_across_processes(x.contiguous(), dim=1))
                     for x in (input_ids, attention_mask))
        forest = fcpc.forest(ids, mask=mask)
        found = [self._parts(model, forest)] if self.tokens is None else \
            [self._parts(model, piece) for piece in self.prog.micro_batches(forest, tokens=self.tokens)]
        every = torch.zeros(2, *ids.shape, device=ids.device)
        for piece, values in found:
            every = every.index_copy(1, torch.as_tensor(piece.rollouts, device=ids.device), values)
        first = accelerator.process_index * rows
        logps, entropies = Summed.apply(every, self.group)[:, first:first + rows, :width][..., -logits_to_keep:]
        return logps, entropies if compute_entropy else None, None

    def _parts(self, model, forest):
        """(the forest, [2, rollouts, width]: log-probabilities and entropies of its rollouts' tokens)"""
        plan = self.prog.plan(forest)
        with self.accelerator.autocast():
            logits = model(**fcpc.hf.inputs(self.attn, plan, forest)).logits[0]
        self.computed += forest.tokens.numel()
        self.rollout_tokens += forest.rollout_tokens
        more = {"plan": plan, "group": self.group, "temperature": self.temperature}
        return forest, torch.stack([forest.logprobs(logits, **more), forest.entropy(logits, **more)])

    def _generate_single_turn(self, *args, **kwargs):
        """The model generates with its own attention and its cache."""
        model = self.accelerator.unwrap_model(self.model)
        model.set_attn_implementation("sdpa")
        try:
            return super()._generate_single_turn(*args, **kwargs)
        finally:
            model.set_attn_implementation(fcpc.hf.NAME)

    def _prepare_inputs(self, generation_batch):
        """TRL shuffles the answers of a generation, and cuts them into as many parts as it takes steps. Answers of a
        prompt stay together here."""
        before, inputs = self._buffered_inputs, super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before or self._buffered_inputs is None:
            return inputs
        self._buffered_inputs = together(self._buffered_inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]


def together(parts):
    """The rows of some batches, in as many batches of the same sizes, equal prompts side by side."""
    rows = [name for name, x in parts[0].items() if isinstance(x, torch.Tensor) and x.dim() > 0]
    whole = {name: torch.cat([part[name] for part in parts]) for name in rows}
    _, prompt = torch.unique(whole["prompt_ids"] * whole["prompt_mask"], dim=0, return_inverse=True)
    order = prompt.argsort(stable=True).split([len(part["prompt_ids"]) for part in parts])
    return [{**part, **{name: x[which] for name, x in whole.items()}} for part, which in zip(parts, order)]


# --- a small model, prompts and answers -------------------------------------------------------------------------------

def save_model(folder):
    """A small random model and its tokenizer, as files: TRL loads a reference model from where its policy is from."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(MODEL).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w1"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2").save_pretrained(folder)


def prompts(count):
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(PROMPT // 2, PROMPT + 1, (count,), generator=draw).tolist()
    return Dataset.from_list([{"prompt": " ".join(f"w{i}" for i in torch.randint(3, WORDS, (n,), generator=draw))}
                              for n in lengths])


def answers(asked, trainer):
    """Answers that are made here, so that both trainers have the same ones; TRL calls it in the place of generation.
    Each is a turn, four words of a tool and an answer, of which the longest do not end. Every two answers to a prompt
    have the same turn."""
    step, process, met = trainer.state.global_step, trainer.accelerator.process_index, {}
    found = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "logprobs": None}
    for prompt in asked:
        number = met[prompt] = met.get(prompt, -1) + 1
        turn, answer = (draw_words(f"{prompt} {step} {which}") for which in (number // 2, f"{process} {number}"))
        found["prompt_ids"].append([int(word[1:]) for word in prompt.split()])
        answer += [MODEL.eos_token_id] * (len(answer) < 14)
        found["completion_ids"].append(turn + [3, 4, 5, 6] + answer)
        found["env_mask"].append([1] * len(turn) + [0] * 4 + [1] * len(answer))
    return found


def draw_words(seed):
    draw = random.Random(seed)
    return [draw.randrange(3, WORDS) for _ in range(draw.randint(6, 16))]


def reward(completion_ids, **_):
    return [sum(word % 3 == 0 for word in words) / len(words) for words in completion_ids]


class Kept(TrainerCallback):
    """Keeps the gradients of each step, as the optimizer gets them."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.gradients.append([p.grad.detach().clone() for p in model.parameters()])


def trainer_of(kind, folder, data, attention, generate=False, **more):
    """A trainer on the model in the folder. Settings that are not given are those of a short run on the CPU."""
    own = {name: more.pop(name) for name in ("plan", "tokens") if name in more}
    settings = GRPOConfig(os.path.join(folder, "runs"), **{
        "use_cpu": True, "bf16": False, "max_steps": 4, "learning_rate": 0.5, "lr_scheduler_type": "constant",
        "optim": "sgd", "max_grad_norm": 0.0, "logging_steps": 1, "report_to": [], "save_strategy": "no",
        "disable_tqdm": True, "per_device_train_batch_size": 2 * ANSWERS, "num_generations": ANSWERS, "beta": 0.05,
        "num_iterations": 2, "max_completion_length": 40, "ddp_find_unused_parameters": False,
        "gradient_checkpointing": False, **more})
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)
    return kind(model, args=settings, reward_funcs=reward, train_dataset=data, callbacks=[Kept()],
                processing_class=AutoTokenizer.from_pretrained(folder),
                rollout_func=None if generate else answers, **own)


def run(trainer):
    """(losses, gradients, norms) of each step."""
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    kept = next(x for x in trainer.callback_handler.callbacks if isinstance(x, Kept))
    return [x["loss"] for x in trainer.state.log_history if "loss" in x], kept.gradients


def farthest(found, right):
    """The largest difference of two lists of tensors, relative to the largest value of each tensor."""
    return max(((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in zip(found, right))


def compare(folder, **settings):
    """Trains with both, and returns what each step's losses and gradients differ by, and the trainer that shares."""
    own = trainer_of(GRPOTrainer, folder, prompts(32), "eager", **{k: v for k, v in settings.items() if k != "tokens"})
    losses, gradients = run(own)
    sharing = trainer_of(SharingGRPO, folder, prompts(32), fcpc.hf.NAME, plan={"block": 16}, **settings)
    got, steps = run(sharing)
    apart = farthest([torch.tensor(got)], [torch.tensor(losses)])
    return apart, max(farthest(a, b) for a, b in zip(steps, gradients)), sharing


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", action="store_true", help="the model answers; there is nothing to compare with")
    generate = parser.parse_args().generate
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)  # each process has files of its own, which are the same
        if generate:
            sharing = trainer_of(SharingGRPO, folder, prompts(32), fcpc.hf.NAME, generate=True, plan={"block": 16})
            losses, _ = run(sharing)
            said = f"losses {losses[0]:.4f} to {losses[-1]:.4f}"
        else:
            loss, gradient, sharing = compare(folder)
            said = f"losses differ by {loss:.1e} of the largest, gradients by {gradient:.1e}"
        if sharing.accelerator.is_main_process:
            print(f"{said}; {sharing.computed} tokens computed in place of {sharing.rollout_tokens}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
