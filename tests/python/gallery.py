"""gallery.py: masks and scores of the kinds that people write for FlexAttention, as functions, each with what it reads.

They are written here from what such masks mean: causal, windows, prefixes, packed documents, images, films, trees,
drafts, noise and copies. `MASKS` and `SCORES` have (name, function, fields); all are for sequences of LENGTH tokens and
4 heads.
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


def in_batches(inner, size):
    """Sequences of one size, end to end."""
    def mask(b, h, q_idx, kv_idx):
        return (q_idx // size == kv_idx // size) & inner(b, h, q_idx % size, kv_idx % size)
    return mask


def near_in_an_image(place):
    """An image of 16 x 16: the 5 x 3 pixels around q; `place` says where a token lies."""
    def mask(b, h, q_idx, kv_idx):
        (q_x, q_y), (k_x, k_y) = place(q_idx), place(kv_idx)
        return ((q_x.clamp(2, 13) - k_x).abs() <= 2) & ((q_y.clamp(1, 14) - k_y).abs() <= 1)
    return mask


def in_tiles(t):
    """Tiles of 4 x 2 pixels, one after the other."""
    tile, within = t // 8, t % 8
    return tile % 4 * 4 + within % 4, tile // 4 * 2 + within // 4


def in_z_order(t):
    """The even bits of a token's number are x, the odd ones y."""
    def even_bits(t):
        t = t & 0x55
        t = (t | (t >> 1)) & 0x33
        return (t | (t >> 2)) & 0x0f
    return even_bits(t), even_bits(t >> 1)


begins = torch.tensor([0, 40, 110, 116, 216, 256])
question = torch.tensor([0, 0, 0, 3, 3])


def shared_questions(b, h, q_idx, kv_idx):
    """Answers see themselves and their question, both causal; a question is a document whose question is itself."""
    of, asked = document[q_idx], question[document[q_idx]]
    return (kv_idx >= begins[of]) & (q_idx >= kv_idx) | \
        (of != asked) & (kv_idx >= begins[asked]) & (kv_idx < begins[asked + 1])


shown = torch.tensor([[0, 90], [60, 100], [90, 256], [100, 200]])
picture = torch.arange(LENGTH) // 64


def texts_that_see_pictures(b, h, q_idx, kv_idx):
    interval = shown[picture[kv_idx]]
    return (q_idx >= interval[0]) & (q_idx < interval[1])


ancestor = torch.eye(56, dtype=torch.bool)
for _node in range(1, 56):
    ancestor[_node] |= ancestor[(_node - 1) // 2]


def drafted_tree(b, h, q_idx, kv_idx):
    """Behind 200 tokens a tree of drafts, which a table of ancestors describes."""
    q_node, k_node = (q_idx - 200).clamp(0, 55), (kv_idx - 200).clamp(min=0, max=55)
    return (kv_idx < 200) | ((q_idx >= 200) & ancestor[q_node, k_node])


def drafted_blocks(b, h, q_idx, kv_idx):
    k_block = kv_idx - 40
    return (kv_idx < 40) | ((k_block >= 0) & (q_idx // 8 == k_block // 8) & (k_block % 8 <= q_idx % 8))


def film_spatial(b, h, q_idx, kv_idx):
    return (kv_idx < 20 + 30) | (q_idx < 20) | (torch.abs(q_idx - kv_idx) < 60)


def film_temporal(b, h, q_idx, kv_idx):
    return (kv_idx < 20) | (q_idx < 20) | (torch.abs((q_idx - 20) % 30 - (kv_idx - 20) % 30) < 5)


_draw = torch.Generator().manual_seed(0)
selected = torch.rand(1, HEADS, 16, 16, generator=_draw) < 0.3
best = torch.randint(16, (1, HEADS, 16, 3), generator=_draw)


def tiles_of_a_map(b, h, q_idx, kv_idx):
    return selected[b, h, q_idx // 16, kv_idx // 16]


def tiles_of_a_list(b, h, q_idx, kv_idx):
    return (best[b, h, q_idx // 16] == (kv_idx // 16).unsqueeze(-1)).any(dim=-1)


MASKS = [(f.__name__, f, fields) for f, fields in (
    (full, []), (causal, []), (window, []), (causal_window, []), (prefix_lm, []), (sink_and_window, []), (dilated, []),
    (strided, []), (per_head, []), (documents, ["document"]), (spans, []), (turns, ["turn"]),
    (global_tokens, ["marked"]), (eviction, ["evicted"]), (tree, ["last"]), (block_causal, []),
    (blocks_that_are_near, []), (neighbourhood, []), (film_tiles, []), (block_diffusion, []), (checkers, []),
    (shared_questions, []), (texts_that_see_pictures, []), (drafted_tree, []), (drafted_blocks, []),
    (film_spatial, []), (film_temporal, []), (tiles_of_a_map, []), (tiles_of_a_list, []))]
MASKS += [("packed causal", packed(causal), ["document"]), ("packed window", packed(causal_window), ["document"]),
          ("documents as a table", documents, []), ("a union", any_of(causal_window, prefix_lm, strided), []),
          ("batches", in_batches(causal, 48), []), ("an image in tiles", near_in_an_image(in_tiles), []),
          ("an image in z order", near_in_an_image(in_z_order), [])]
NAME_HEADS = ("per_head", "tiles_of_a_map", "tiles_of_a_list")  # of the masks, those that differ by head


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
