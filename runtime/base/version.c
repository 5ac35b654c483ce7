/* version.c: which version of the library this is. */
#include "runtime/fcp.h"

const char *fcp_version(void) { return FCP_VERSION; }
uint32_t fcp_version_number(void) { return FCP_VERSION_NUMBER; }
