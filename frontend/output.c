/* Standard output of the verbs. See output.h.
 *
 * errno is read right after the call that failed; a stream that failed earlier and was not asked then counts as
 * failed without a reason. Thread: main. SIGPIPE is ignored by the program, so a gone reader is EPIPE here.
 */
#include "frontend/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool tell(const char *verb, int code)
{
    if (code != EPIPE) {
        fprintf(stderr, "espalier %s: cannot write to standard output: %s\n", verb,
                code == 0 ? "it failed earlier" : strerror(code));
    }
    return false;
}

bool esp_output_write(const char *verb, const char *data, size_t n_bytes)
{
    errno = 0;
    if (fwrite(data, 1, n_bytes, stdout) != n_bytes || fflush(stdout) != 0) {
        return tell(verb, errno);
    }
    return true;
}

bool esp_output_flush(const char *verb)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return tell(verb, errno);
    }
    return true;
}
