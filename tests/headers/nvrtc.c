/* nvrtc.c: compares runtime/libraries/nvrtc_symbols.h with NVRTC's own header, as cuda.c does for CUDA. */
#include "runtime/libraries/nvrtc_symbols.h"

#include <nvrtc.h>

#include "tests/headers/same.h"

SAME_NUMBER(NVRTC_DONE, NVRTC_SUCCESS);
SAME_NUMBER(NVRTC_OUT_OF_MEMORY, NVRTC_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(NVRTC_INTERNAL_ERROR, NVRTC_ERROR_INTERNAL_ERROR);
SAME_TYPE(nvrtc_program, nvrtcProgram);
SAME_TYPE(nvrtc_result, nvrtcResult);
#define nvrtc_program nvrtcProgram
#define nvrtc_result nvrtcResult
FCP_NVRTC_SYMBOLS(SAME_FUNCTION)

int main(void) {
    static const asked_name required[] = {FCP_NVRTC_SYMBOLS(ASKED_NAME)};
    return same_names("required", required, sizeof required / sizeof *required) != 0;
}
