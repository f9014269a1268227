/* What the shared library takes from the layers: a reference to each public function, since the
 * layers are static libraries and a linker keeps only what is asked for. */
#include <sotto/sotto.h>

extern const void *const sotto_public_[];
const void *const sotto_public_[] = {
    (const void *)sotto_version,
    (const void *)sotto_status_name,
    (const void *)sotto_error,
    (const void *)sotto_command,
};
