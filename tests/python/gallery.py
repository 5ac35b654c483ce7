"""gallery.py: masks and scores of the kinds that people write for FlexAttention, as functions, each with what it reads.

They are written here from what such masks mean: causal, windows, prefixes, packed documents, images, films, trees,
noise and copies. `MASKS` and `SCORES` have (name, function, fields); all are for sequences of LENGTH tokens, 4 heads.
"""
import torch

LENGTH, HEADS = 256, 4
document = torch.repeat_interleave(torch.arange(5), torch.tensor([40, 70, 6, 100, 40]))
offsets = torch.tensor([0, 40, 110, 116, 216])
turn = torch.arange(LENGTH) // 16 % 3
marked = torch.arange(LENGTH) % 37 == 0
evicted = (torch.arange(LENGTH) * 7919 % 97) + torch.arange(LENGTH)
last = torch.where(torch.arange(LENGTH) % 8 == 0, torch.arange(LENGTH) + 7, torch.arange(LENGTH))
near = (torch.arange(16)[:, None] + torch.arange(16)) % 3 == 0
reach = torch.tensor([8, 16, 64, 256])
slopes = torch.exp2(-8.0 * (torch.arange(HEADS) + 1) / HEADS)
bias = torch.linspace(-2, 2, HEADS * 32).reshape(HEADS, 32)
WIDTH = 16


def full(b, h, q_idx, kv_idx):
    return q_idx.new_ones((), dtype=torch.bool)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= 20


def causal_window(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx <= 30)


def prefix_lm(b, h, q_idx, kv_idx):
    return (kv_idx < 50) | causal(b, h, q_idx, kv_idx)


def sink_and_window(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & torch.logical_or(kv_idx < 4, q_idx - kv_idx < 33)


def dilated(b, h, q_idx, kv_idx):
    distance = torch.abs(q_idx - kv_idx)
    return (distance <= 40) & (distance % 4 == 0)


def strided(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & ((q_idx - kv_idx < 16) | (kv_idx % 16 == 15))


def per_head(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx < reach[h])


def documents(b, h, q_idx, kv_idx):
    return document[q_idx] == document[kv_idx]


def packed(inner):
    """A mask of single sequences, for each of several documents in one."""
    def mask(b, h, q_idx, kv_idx):
        of_q, of_k = document[q_idx], document[kv_idx]
        return (of_q == of_k) & inner(b, h, q_idx - offsets[of_q], kv_idx - offsets[of_k])
    return mask


def any_of(*masks):
    def mask(b, h, q_idx, kv_idx):
        found = masks[0](b, h, q_idx, kv_idx)
        for other in masks[1:]:
            found = found | other(b, h, q_idx, kv_idx)
        return found
    return mask


def spans(b, h, q_idx, kv_idx):
    """Text is causal; three pictures in it see themselves whole."""
    allowed = q_idx >= kv_idx
    for begin, end in ((10, 30), (80, 120), (200, 201)):
        allowed = allowed | ((q_idx >= begin) & (q_idx < end) & (kv_idx >= begin) & (kv_idx < end))
    return allowed


def turns(b, h, q_idx, kv_idx):
    return (kv_idx <= q_idx) & ~((turn[kv_idx] == 1) & (q_idx // 48 != kv_idx // 48))


def global_tokens(b, h, q_idx, kv_idx):
    return (marked[q_idx] | marked[kv_idx]) | (torch.abs(q_idx - kv_idx) < 10)


def eviction(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx <= evicted[kv_idx])


def tree(b, h, q_idx, kv_idx):
    return (kv_idx <= q_idx) & (q_idx <= last[kv_idx])


def block_causal(b, h, q_idx, kv_idx):
    return q_idx // 32 >= kv_idx // 32


def blocks_that_are_near(b, h, q_idx, kv_idx):
    return near[q_idx // 16, kv_idx // 16]


def neighbourhood(b, h, q_idx, kv_idx):
    """An image 16 wide: the 5 x 3 pixels around q, moved inwards at the edges."""
    q_x, q_y, k_x, k_y = q_idx % WIDTH, q_idx // WIDTH, kv_idx % WIDTH, kv_idx // WIDTH
    middle_x = torch.clamp(q_x, min=2, max=WIDTH - 1 - 2)
    middle_y = q_y.clamp(1, LENGTH // WIDTH - 1 - 1)
    return ((middle_x - k_x).abs() <= 2) & ((middle_y - k_y).abs() <= 1)


def film_tiles(b, h, q_idx, kv_idx):
    """Tiles of 8 tokens, 4 x 4 x 2 of them: those within one tile of q's, in each direction."""
    def place(t):
        tile = t // 8
        return tile // 16, tile // 4 % 4, tile % 4
    (a, c, d), (e, f, g) = place(q_idx), place(kv_idx)
    return ((a - e).abs() <= 1) & ((c.clamp(1, 2) - f).abs() <= 1) & ((d.clamp(1, 2) - g).abs() <= 1)


def block_diffusion(b, h, q_idx, kv_idx):
    """The first half is noised, the second is clean."""
    half = LENGTH // 2
    q_clean, k_clean = q_idx >= half, kv_idx >= half
    q_block = torch.where(q_clean, (q_idx - half) // 16, q_idx // 16)
    k_block = torch.where(k_clean, (kv_idx - half) // 16, kv_idx // 16)
    same = (q_block == k_block) & (q_clean == k_clean)
    before = (q_block > k_block) & k_clean & ~q_clean
    return same | before | (q_clean & k_clean & (q_block >= k_block))


def checkers(b, h, q_idx, kv_idx):
    return ((q_idx >> 5) % 2 == 0) ^ ((kv_idx >> 5) % 2 == 0) | (5 - kv_idx > -q_idx)


MASKS = [(f.__name__, f, fields) for f, fields in (
    (full, []), (causal, []), (window, []), (causal_window, []), (prefix_lm, []), (sink_and_window, []), (dilated, []),
    (strided, []), (per_head, []), (documents, ["document"]), (spans, []), (turns, ["turn"]),
    (global_tokens, ["marked"]), (eviction, ["evicted"]), (tree, ["last"]), (block_causal, []),
    (blocks_that_are_near, []), (neighbourhood, []), (film_tiles, []), (block_diffusion, []), (checkers, []))]
MASKS += [("packed causal", packed(causal), ["document"]), ("packed window", packed(causal_window), ["document"]),
          ("documents as a table", documents, []), ("a union", any_of(causal_window, prefix_lm, strided), [])]


def alibi(score, b, h, q_idx, kv_idx):
    return score + (kv_idx - q_idx) * torch.exp2(-8.0 * (h + 1) / HEADS)


def alibi_of_a_table(score, b, h, q_idx, kv_idx):
    return score - slopes[h] * torch.abs(q_idx - kv_idx)


def softcap(score, b, h, q_idx, kv_idx):
    return 3.0 * torch.tanh(score / 3.0)


def relative(score, b, h, q_idx, kv_idx):
    return score + bias[h, torch.clamp(torch.abs(q_idx - kv_idx) // 8, max=31)]


def far_is_weaker(score, b, h, q_idx, kv_idx):
    return torch.where((q_idx - kv_idx) // 32 % 2 == 0, score, score * 0.5 - 1)


def both(score, b, h, q_idx, kv_idx):
    return softcap(relative(score, b, h, q_idx, kv_idx), b, h, q_idx, kv_idx)


SCORES = [(f.__name__, f) for f in (alibi, alibi_of_a_table, softcap, relative, far_is_weaker, both)]
