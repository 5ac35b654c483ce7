/* foreign_words.c: the table of words of other projects, and how one is found in it.
 *
 * A test compiles everything that the table says is to be written, and compares the table with grammar/LANGUAGE.md
 * (tests/unit/syntax/test_foreign_words.c).
 */
#include "compiler/syntax/foreign_words.h"
#include "compiler/fcpc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY = FCPC_FOREIGN_KEY,
    NAME = FCPC_FOREIGN_NAME,
    SCORE = FCPC_FOREIGN_SCORE,
    PLAN = FCPC_FOREIGN_PLAN,
    STRATEGY = FCPC_FOREIGN_STRATEGY,
    ARGUMENT = FCPC_FOREIGN_ARGUMENT,
    VALUE = FCPC_FOREIGN_VALUE,
    MASK = NAME | PLAN /* a mask, in a mask or in the plan */
};

static const foreign_word table[] = {
    /* --- the mask as a key --- */
    {KEY, "window sliding_window", "transformers", "plan { mask = window(w = $64$) }",
     "w counts the query's own token; without a window, mask = causal"},
    {KEY, "window_size", "FlashAttention, TransformerEngine", "plan { mask = $window_both(l = 64, r = 0)$ }",
     "its -1, no limit, is a mask of its own: causal, full, or mask back = q - k <= 64"},
    {KEY, "window_left sliding_window_size", "FlashInfer, SGLang", "plan { mask = $window_both(l = 64, r = 0)$ }",
     "its -1, no limit, is mask = causal"},
    {KEY, "causal is_causal attn_mask_type", "FlashAttention, PyTorch, TransformerEngine", "plan { mask = causal }",
     "without it, mask = full; with fewer queries than keys, PyTorch's is batch { align = top_left }"},
    {KEY | NAME, "attn_mask attention_mask", "PyTorch, transformers", "mask m = k <= q",
     "a mask is a rule; a tensor of it is read as a field, a table or slices"},
    {KEY | NAME, "key_padding_mask padding_mask", "PyTorch, TransformerEngine", "batch { lengths = [100, 50] }",
     "there is no padding: a sequence has as many tokens as it has"},
    {KEY, "block_mask mask_mod create_block_mask", "FlexAttention", "mask m = k <= q and q - k < 64",
     "in Python, fcpc.program takes a mask_mod and a BlockMask"},
    {KEY, "score_mod", "FlexAttention", "score biased = s - 0.5 * (q - k)", "in Python, fcpc.program(score=score_mod)"},
    {KEY, "q_ranges k_ranges attn_type_map", "MagiAttention",
     "plan { mask = slices([0, 64, 0, 64, causal], [64, 128, 0, 64, full]) }",
     "in Python, fcpc.program(fcpc.masks.from_ranges(q_ranges, k_ranges, attn_type_map))"},
    {KEY | NAME, "startend_row_indices", "FlashMask", "batch { field end = given }",
     "of its one causal column: mask m = causal and q < end[k]; in Python, fcpc.masks.from_startend_row_indices"},
    {KEY, "prefix_lens prefix_lengths", "prefix LM", "batch { field prefix = $[10, 20]$ over sequences }",
     "a number for each sequence, read by its name: mask m = k < prefix or k <= q"},
    {KEY, "prefix_len prefix_length", "prefix LM", "plan { mask = prefix(p = $64$) }",
     "a prefix for each sequence is a field: field prefix = [10, 20] over sequences, read k < prefix"},
    {KEY | PLAN, "attention_chunk attention_chunk_size chunked chunked_attention", "FlashAttention, transformers",
     "mask chunked = causal and q / $64$ == k / $64$", ""},
    {KEY, "sink_size num_sink_tokens attention_sink_size start_size", "StreamingLLM",
     "plan { mask = lambda(sink = $4$, window = 64) }", ""},
    {KEY, "streaming streaming_llm", "StreamingLLM", "plan { mask = lambda(sink = 4, window = 64) }", ""},
    {KEY, "sinks attention_sinks learnable_sink s_aux", "transformers, FlashAttention", "plan { sink = $0.5$ }",
     "a number for all heads, or a list with one for each"},
    /* --- the score as a key --- */
    {KEY | SCORE, "softcap soft_cap logit_cap logits_soft_cap logit_softcapping attn_logit_softcapping",
     "FlashAttention, SGLang, FlashInfer, transformers", "plan { score = softcap(c = $30.0$) }",
     "its 0, no cap, is no score at all"},
    {KEY | SCORE, "alibi use_alibi", "transformers", "plan { score = alibi }", "the slopes are those of its paper"},
    {KEY, "alibi_slopes", "FlashAttention", "model { table slopes = $[0.5, 0.25]$ }",
     "a slope for each head, for plan { score = alibi_slopes(slopes = slopes) }"},
    {KEY, "attn_bias attention_bias position_bias rel_pos_bias", "PyTorch, xFormers, T5",
     "model { table bias = [0.5, 0.25, 0.0] }", "read by a score: score biased = s + bias[min(abs(q - k), 2)]"},
    {KEY, "softmax_scale sm_scale scaling attention_scale scale_factor", "FlashAttention, Triton, transformers",
     "model { scale = $0.125$ }", ""},
    {KEY, "dropout dropout_p attention_dropout attn_dropout", "PyTorch, FlashAttention", "",
     "there is no dropout: attention is exact"},
    /* --- model --- */
    {KEY, "num_heads n_heads n_head nheads num_attention_heads num_qo_heads num_q_heads", "transformers, Megatron",
     "model { heads = $32$ }", ""},
    {KEY, "num_kv_heads n_kv_heads num_key_value_heads num_query_groups num_gqa_groups nheads_k",
     "transformers, Megatron, TransformerEngine", "model { kv_heads = $8$ }", ""},
    {KEY, "num_layers n_layers n_layer num_hidden_layers", "transformers, Megatron", "",
     "a plan is for a layer, whatever their number; masks that differ by layer are plan { layers = [...] }"},
    {KEY, "masks layer_types attention_types", "transformers", "plan { layers = [causal, window(w = 64)] }",
     "a mask for each kind of layer"},
    {KEY, "full_attention_interval attn_layer_period hybrid_override_pattern layers_block_type",
     "Qwen3-Next, Jamba, Nemotron-H", "plan { layers = [causal, scan x 3] }",
     "how often each kind of layer comes, in any order"},
    {KEY, "linear_num_value_heads linear_key_head_dim linear_value_head_dim", "Qwen3-Next",
     "plan { layers = [causal, scan(heads = 32, head_dim = 128, value_dim = 128) x 3] }",
     "the state of a head is head_dim x value_dim"},
    {KEY, "d_state state_size ssm_state_size mamba_d_state mamba_num_heads mamba_head_dim", "Mamba, Jamba, Nemotron-H",
     "plan { layers = [causal, scan(heads = 128, head_dim = 128, value_dim = 64) x 7] }",
     "head_dim is the state's size, and value_dim the width of a head"},
    {KEY, "d_conv conv_kernel mamba_d_conv linear_conv_kernel_dim conv_L_cache", "Mamba, Qwen3-Next, LFM2",
     "plan { layers = [causal, halo(before = 3) x 3] }", "a convolution of 4 tokens reads 3 before its own"},
    {KEY, "enable_gqa", "PyTorch", "model { kv_heads = 2 }", "heads / kv_heads query heads share one"},
    {KEY, "headdim head_size d_head kv_channels qk_head_dim head_dim_qk", "FlashAttention, vLLM, Megatron",
     "model { head_dim = $128$ }", ""},
    {KEY, "head_dim_v headdim_v v_head_dim head_dim_vo", "FlashAttention, transformers, FlashInfer",
     "model { value_dim = $128$ }", ""},
    {KEY, "hidden_size d_model embed_dim", "transformers, PyTorch", "model { heads = 32; head_dim = 128 }", ""},
    {KEY, "kv_lora_rank qk_rope_head_dim", "DeepSeek",
     "model { kv_heads = 1; head_dim = 576; value_dim = 512; values = keys }", "MLA whose keys and values are latents"},
    {KEY, "torch_dtype params_dtype precision data_type", "transformers, Megatron", "model { dtype = bf16 }", ""},
    {VALUE, "bfloat16", "PyTorch", "bf16", ""},
    {VALUE, "float16 half", "PyTorch", "fp16", ""},
    {VALUE, "float32 float", "PyTorch", "fp32", ""},
    {VALUE, "diagonal", "Mamba, GLA", "vector", ""},
    {VALUE, "thd bshd sbhd", "TransformerEngine", "",
     "tensors are [tokens, heads, head_dim] always; layout says which ranks hold which tokens"},
    /* --- batch --- */
    {KEY, "seqlens seq_lens sequence_lengths context_lens kv_lens seqlens_k cache_seqlens", "vLLM, FlashAttention",
     "batch { lengths = $[64, 32]$ }", "a number for each sequence; 1:64 for one query on 64 keys"},
    {KEY, "seqlen seq_len seq_length sequence_length", "Megatron, transformers", "batch { lengths = [$64$] }",
     "a number for each sequence: [64 x 8] has 8"},
    {KEY, "cu_seqlens cu_seqlens_q seqstart_q qo_indptr", "FlashAttention, xFormers, FlashInfer",
     "batch { lengths = cumulative($[0, 3, 5, 10]$) }", ""},
    {KEY, "cu_seqlens_k cu_seqlens_kv seqstart_k kv_indptr", "FlashAttention, xFormers, FlashInfer",
     "batch { lengths = cumulative([0, 3, 5], keys = $[0, 10, 20]$) }", "the first list is that of queries"},
    {KEY, "queries q_lengths kv_lengths q_lens query_lengths key_lengths q_seqlens kv_seqlens query_lens",
     "kernels for decoding", "batch { lengths = [10:100] }", "QUERIES:KEYS of each sequence"},
    {KEY, "max_seqlen max_seqlen_q max_seqlen_k max_seq_len total_seqlen", "FlashAttention", "",
     "lengths says it: batch { lengths = [64, 32] }"},
    {KEY, "batch_size bs micro_batch_size", "Megatron, transformers", "batch { lengths = [64 x $8$] }", ""},
    {KEY | NAME, "position_ids", "transformers", "", "positions begin at 0 in each sequence; lengths says where"},
    {KEY | NAME, "doc_ids document_ids document_id segment_ids sequence_ids seq_idx", "FlexAttention, JAX, torchtune",
     "batch { field doc = given }", "read doc[q] == doc[k]; or make each document a sequence of lengths"},
    {KEY, "page_size page_table block_table block_tables", "vLLM, FlashInfer", "",
     "there are no pages: the keys of a sequence lie one behind the other"},
    {KEY, "qkv_format input_layout tensor_layout", "TransformerEngine", "",
     "tensors are [tokens, heads, head_dim], sequences end to end, which is thd there"},
    /* --- cluster, plan --- */
    {KEY, "world_size num_gpus ngpus nproc_per_node gpus_per_node", "PyTorch", "cluster { gpus = $8$ }",
     "nodes x gpus are the ranks that share a batch"},
    {KEY, "cp_size context_parallel_size cp_degree sp_size sp_degree sequence_parallel_size",
     "Megatron, DeepSpeed, torchtitan", "cluster { gpus = $8$ }", "nodes x gpus are the ranks that share a batch"},
    {KEY, "bandwidth nvlink nvlink_bandwidth", "", "cluster { intra = 450 GB/s }",
     "of a GPU within its node; inter is that to other nodes"},
    {KEY, "num_nodes nnodes", "PyTorch", "cluster { nodes = $4$ }", ""},
    {KEY, "tp_size tensor_parallel_size tensor_model_parallel_size", "Megatron, vLLM", "",
     "heads are those of one tensor-parallel rank: model { heads = 8; kv_heads = 2 }"},
    {KEY, "ring_degree ring ring_attention", "xDiT", "plan { strategy = ring }", ""},
    {KEY, "ulysses ulysses_degree ulysses_size ulysses_sequence_parallel_size", "xDiT, verl",
     "plan { strategy = ulysses }", "with a ring among groups of 4: ulysses(inside = 4) + ring"},
    {KEY, "cp_comm_type", "Megatron, TransformerEngine", "plan { strategy = auto }",
     "p2p is zigzag, a2a ulysses, a2a+p2p ulysses(inside = 4) + ring"},
    {KEY, "block_size BLOCK_SIZE", "FlexAttention, vLLM", "plan { block = $512$ }",
     "tokens that are sent as one; kernels skip by 128 x 128 pairs whatever it is"},
    {KEY, "return_lse return_softmax_lse return_attn_probs", "FlashAttention", "",
     "a run gives the log-sum-exp of each row anyway"},
    {KEY, "training is_training backward", "TransformerEngine", "plan { passes = forward, backward }", ""},
    {STRATEGY, "ring_attention ring_attn p2p", "ring-flash-attention, TransformerEngine", "ring", ""},
    {STRATEGY, "megatron zigzag_ring context_parallel", "Megatron, ring-flash-attention", "zigzag", ""},
    {STRATEGY, "a2a all_to_all alltoall deepspeed", "DeepSpeed, TransformerEngine", "ulysses", ""},
    {STRATEGY, "usp unified", "xDiT", "ulysses(inside = node) + ring", ""},
    /* --- masks that have other names --- */
    {MASK, "none None no_mask padding bidirectional dense noop_mask", "TransformerEngine, FlexAttention", "full", ""},
    {MASK,
     "causal_mask tril lower_triangular LowerTriangularMask padding_causal causal_bottom_right "
     "LowerTriangularFromBottomRightMask",
     "PyTorch, xFormers, TransformerEngine", "causal", ""},
    {MASK, "sliding_window sliding sliding_attention swa local local_attention", "transformers", "window(w = $64$)",
     "w counts the query's own token"},
    {PLAN, "full_attention", "transformers", "causal", "the mask full also sees what comes later"},
    {PLAN, "linear_attention lightning_attention gated_delta_net gated_deltanet kda retention mamba mamba2 ssm",
     "transformers", "plan { layers = [causal, scan x 3] }", "a state that runs along each sequence"},
    {PLAN, "conv conv1d short_conv causal_conv1d", "transformers, causal-conv1d",
     "plan { layers = [causal, halo(before = 3) x 3] }", "a convolution of 4 tokens reads 3 before its own"},
    {MASK, "LocalAttentionFromBottomRightMask", "xFormers", "window_both(l = $64$, r = 0)", ""},
    {MASK, "streaming streaming_llm attention_sink a_shape lm_infinite", "StreamingLLM, MInference",
     "lambda(sink = $4$, window = 64)", ""},
    {MASK, "prefix_lm prefixlm prefix_causal", "FlexAttention", "prefix(p = $64$)", ""},
    {MASK, "longformer", "transformers", "global_window(g = $4$, w = 32)", "w tokens to either side"},
    {MASK, "document_mask document_causal BlockDiagonalCausalMask", "FlexAttention, xFormers", "causal",
     "a batch is a list of sequences, none of which sees another; inside one, causal_document(d = doc)"},
    {MASK, "block_diagonal BlockDiagonalMask packed varlen", "xFormers, FlashAttention", "full",
     "a batch is a list of sequences, none of which sees another; inside one, document(d = doc)"},
    /* --- names in masks and scores --- */
    {NAME, "q_idx query_idx", "FlexAttention", "q", ""},
    {NAME, "kv_idx k_idx key_idx", "FlexAttention", "k", ""},
    {NAME, "head head_idx h_idx", "FlexAttention", "h", ""},
    {NAME, "b batch_idx b_idx", "FlexAttention", "batch { field prefix = [10, 20] over sequences }",
     "a number for each sequence, read by its name, k < prefix; a batch is a list of sequences, none of which sees "
     "another"},
    {NAME, "seq_len seqlen seq_length N S seqlen_k kv_len", "FlexAttention", "n", "the sequence's number of keys"},
    {NAME, "q_len seqlen_q", "FlexAttention", "", "q is a position, and the last query is where the last key is"},
    {NAME, "slopes", "ALiBi", "model { table slopes = [0.5, 0.25] }", "read slopes[h] in a score"},
    {NAME, "num_heads n_heads num_attention_heads", "", "heads", ""},
    {NAME, "num_kv_heads n_kv_heads num_key_value_heads", "", "kv_heads", ""},
    {NAME, "kv_head h_kv", "FlexAttention", "h / (heads / kv_heads)", ""},
    {NAME, "True", "Python", "true", ""},
    {NAME, "False", "Python", "false", ""},
    {NAME, "and_masks logical_and", "FlexAttention, PyTorch", "causal and window(w = 64)", ""},
    {NAME, "or_masks logical_or", "FlexAttention, PyTorch", "causal or k < 64", ""},
    {NAME, "logical_not", "PyTorch", "not causal", ""},
    {NAME, "clamp clip", "PyTorch", "min(max(q - k, 0), 63)", ""},
    {NAME, "floor_divide", "PyTorch", "q / 64", "/ rounds down"},
    {NAME, "int bool round", "Python", "", "whole numbers and conditions are what they are: q / 64 rounds down"},
    {NAME, "mod remainder fmod", "PyTorch", "q % 64", ""},
    {NAME, "any all sum", "PyTorch", "", "a mask is asked about one pair of q and k at a time"},
    {NAME, "layer layer_idx layer_id", "transformers", "plan { layers = [causal, window(w = 64)] }",
     "a mask for each kind of layer"},
    {SCORE, "score", "FlexAttention", "s", ""},
    {SCORE, "none None identity", "FlexAttention", "", "without a score logits stay as they are: leave the key out"},
    {SCORE, "inf", "PyTorch", "", "pairs that are not to be seen belong to the mask: plan { mask = causal }"},
    {SCORE, "relu", "PyTorch", "max(s, 0.0)", ""},
    {SCORE, "sigmoid", "PyTorch", "1.0 / (1.0 + exp(-s))", ""},
    /* --- parameters --- */
    {ARGUMENT, "window window_size sliding_window size", "transformers", "w", ""},
    {ARGUMENT, "window_size sliding_window", "transformers", "window", ""},
    {ARGUMENT, "left window_left window_size_left", "FlashAttention", "l", ""},
    {ARGUMENT, "right window_right window_size_right", "FlashAttention", "r", ""},
    {ARGUMENT, "sinks sink_size num_sinks sink_tokens", "StreamingLLM", "sink", ""},
    {ARGUMENT, "cap softcap soft_cap logit_cap", "FlashAttention", "c", ""},
    {ARGUMENT, "degree group_size ulysses_degree", "xDiT", "inside", ""},
    {ARGUMENT, "prefix prefix_len prefix_length", "prefix LM", "p", ""},
    {ARGUMENT, "block_size block chunk_size", "block masks", "b", ""},
    {ARGUMENT, "num_heads n_heads nheads num_v_heads", "transformers", "heads", ""},
    {ARGUMENT, "d_state state_size ssm_state_size head_k_dim", "Mamba, delta nets", "head_dim", ""},
    {ARGUMENT, "head_v_dim", "delta nets", "value_dim", ""},
    {ARGUMENT, "reversed backward", "", "reverse", ""},
    {ARGUMENT, "doc docs documents doc_ids", "document masks", "d", ""},
};

const foreign_word *foreign_words_get(size_t i) { return i < sizeof table / sizeof *table ? &table[i] : NULL; }

static bool has_word(const char *words, const char *word) {
    const size_t size = strlen(word);
    for (const char *at = words; size && (at = strstr(at, word)); at += size)
        if ((at == words || at[-1] == ' ') && (!at[size] || at[size] == ' ')) return true;
    return false;
}

const foreign_word *foreign_words_find(const char *word, unsigned places, const foreign_word *after) {
    for (size_t i = after ? (size_t)(after - table) + 1 : 0; i < sizeof table / sizeof *table; i++)
        if (table[i].places & places && has_word(table[i].words, word)) return &table[i];
    return NULL;
}

/* Is the user's text a number or list of the kind of the example? A whole number may stand for a real one. */
static bool fits_example(const char *value, const char *example) {
    enum { ELEMENTS = 8 }; /* a longer list is no help in a hint */
    if (*example == '[') {
        size_t commas = 0;
        for (const char *c = value; *c; c++) commas += *c == ',';
        return *value == '[' && value[strlen(value) - 1] == ']' && commas < ELEMENTS;
    }
    if (*example < '0' || *example > '9') return false; /* window_both, in which put_own_window has put no numbers */
    const size_t whole = strspn(value, "0123456789"), size = strspn(value, "0123456789.");
    const bool point = memchr(example, '.', strcspn(example, "$")) != NULL;
    return whole && !value[size] && (point || whole == size);
}

bool foreign_words_put_window(int64_t l, int64_t r, text *out) {
    const bool no_left = l < 0 && l != FOREIGN_UNKNOWN, no_right = r < 0 && r != FOREIGN_UNKNOWN;
    if (no_left && no_right) text_puts(out, "full");
    else if (no_left && r == 0) text_puts(out, "causal");
    else if (no_left && r > 0) text_printf(out, "mask ahead = k - q <= %" PRId64, r);
    else if (no_right && l >= 0) text_printf(out, "mask back = q - k <= %" PRId64, l);
    else if (no_left) text_puts(out, "k - q <= r");
    else if (no_right) text_puts(out, "q - k <= l");
    else text_printf(out, "window_both(l = %" PRId64 ", r = %" PRId64 ")", l, r);
    return (no_left || no_right) && !(no_left && no_right) && !(no_left && r == 0);
}

/* Reads one side of a window at *at, as 128, 4K, -1 or None, which is -1. False: it is something else. */
static bool read_side(const char **at, int64_t *out) {
    static const char units[] = "KMG";
    *at += strspn(*at, " ");
    if (!strncmp(*at, "None", 4)) {
        *out = -1;
        *at += 4;
        return true;
    }
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    if (end == *at || errno) return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        if (__builtin_mul_overflow(*out, (int64_t)1024, out)) return false;
    *at = end + (unit ? 1 : 0) + strspn(end + (unit ? 1 : 0), " ");
    return true;
}

/* Adds what to write for a window as FlashAttention has it: [l, r], (l, r), or l alone, where r is 0. False: the user's
 * text is something else. */
static bool put_own_window(const char *value, text *out) {
    const char *at = value + (*value == '[' || *value == '(');
    int64_t l, r = 0;
    if (!read_side(&at, &l)) return false;
    if (*value == '[' || *value == '(') {
        if (*at++ != ',' || !read_side(&at, &r) || *at++ != (*value == '[' ? ']' : ')')) return false;
    }
    if (*at) return false;
    text own = {0};
    const bool definition = foreign_words_put_window(l, r, &own);
    text_printf(out, definition ? "%.*s" : "plan { mask = %.*s }", (int)own.size, own.failed ? "" : own.at);
    text_free(&own);
    return true;
}

void foreign_words_print(const foreign_word *h, const char *value, text *out) {
    if (value && strstr(h->write, "$window_both(") && put_own_window(value, out)) return;
    for (const char *at = h->write; *at;) {
        const size_t plain = strcspn(at, "$");
        text_add(out, at, plain);
        at += plain;
        if (!*at) break;
        const size_t example = strcspn(++at, "$");
        if (!value || !fits_example(value, at)) text_add(out, at, example);
        else {
            text_puts(out, value);
            if (*value != '[' && memchr(at, '.', example) && !strchr(value, '.')) text_puts(out, ".0");
        }
        at += example + 1;
    }
}

char *fcpc_foreign_word(const char *word, uint32_t places, const char *value) {
    const foreign_word *h = foreign_words_find(word, places, NULL);
    text t = {0};
    if (!h) return NULL;
    if (*h->write) text_puts(&t, "write ");
    foreign_words_print(h, value, &t);
    text_printf(&t, "%s%s", *h->write && *h->why ? ": " : "", h->why);
    return text_take(&t);
}
