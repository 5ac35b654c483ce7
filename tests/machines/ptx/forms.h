/* forms.h: all tables of forms of instructions (ptx.h says what a form is), for the files that define a table. */
#ifndef PTX_FORMS_H
#define PTX_FORMS_H
#include "tests/machines/ptx/ptx.h"

extern const ptx_form ptx_alu_forms[], ptx_convert_forms[], ptx_memory_forms[], ptx_warp_forms[], ptx_async_forms[],
    ptx_bulk_forms[], ptx_wgmma_forms[];
extern const size_t ptx_alu_form_count, ptx_convert_form_count, ptx_memory_form_count, ptx_warp_form_count,
    ptx_async_form_count, ptx_bulk_form_count, ptx_wgmma_form_count;

/* Does the body for each lane of a mask. All lanes are a loop of their own, which the compiler can vectorise. */
#define PTX_EACH(mask, l, ...)                                                                                         \
    do {                                                                                                               \
        if ((mask) == PTX_ALL) {                                                                                       \
            for (unsigned l = 0; l < PTX_LANES; l++) { __VA_ARGS__ }                                                   \
        } else {                                                                                                       \
            for (unsigned l = 0; l < PTX_LANES; l++)                                                                   \
                if ((mask) >> l & 1) { __VA_ARGS__ }                                                                   \
        }                                                                                                              \
    } while (0)
typedef uint32_t __attribute__((may_alias)) ptx_u32;
typedef uint64_t __attribute__((may_alias)) ptx_u64;
typedef float __attribute__((may_alias)) ptx_f32;
#endif
