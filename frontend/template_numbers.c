/* Filters that make or take numbers.
 *
 * int and float read texts as Python does and fall back quietly; rounding is that of the C library on the exact
 * value, as Python's is. Integers that do not fit 64 bits are refused. Thread: the rendering's owner.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/template_internal.h"

/* The text of a number without white space around it, copied to out; false when it is too long for one. */
static bool number_text(struct tpl_run *run, const struct tpl_str *str, char *out, size_t room)
{
    struct tpl_value text;
    if (!esp_tpl_str_strip(run, str, NULL, TPL_STRIP_BOTH, &text) || text.str->n == 0 || text.str->n >= room) {
        return false;
    }
    memcpy(out, text.str->data, text.str->n);
    out[text.str->n] = '\0';
    return strlen(out) == text.str->n;
}

static bool parse_real(const char *text, double *ret)
{
    char *end;
    if (text[0] == '\0' || strpbrk(text, "xXpP") != NULL) {
        return false;
    }
    *ret = strtod(text, &end);
    return *end == '\0';
}

static bool parse_integer(const char *text, int64_t base, int64_t *ret)
{
    char *end;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    char radix = digits[0] == '0' ? (char)tolower((unsigned char)digits[1]) : 0;
    bool prefixed = (base == 16 && radix == 'x') || (base == 8 && radix == 'o') || (base == 2 && radix == 'b');
    digits += prefixed ? 2 : 0;
    if (base < 2 || base > 36 || !isalnum((unsigned char)digits[0])) {
        return false;
    }
    errno = 0;
    long long value = strtoll(digits, &end, (int)base);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *ret = text[0] == '-' ? -value : value;
    return true;
}

static bool f_int(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    char text[128];
    int64_t base, value;
    double real = NAN;
    if (!esp_tpl_arg_int(run, &call->arg[1], 10, &base)) {
        return false;
    }
    *ret = call->arg[0].kind == TPL_UNSET ? esp_tpl_int(0) : call->arg[0];
    if (esp_tpl_as_int(&call->self, &value)) {
        *ret = esp_tpl_int(value);
        return true;
    }
    if (call->self.kind == TPL_STR && number_text(run, call->self.str, text, sizeof text)) {
        if (parse_integer(text, base, &value)) {
            *ret = esp_tpl_int(value);
            return true;
        }
        if (!parse_real(text, &real)) {
            real = NAN;
        }
    }
    real = call->self.kind == TPL_FLOAT ? call->self.real : real;
    if (real > -9.2e18 && real < 9.2e18) {
        *ret = esp_tpl_int((int64_t)real);
    }
    return true;
}

static bool f_float(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    char text[128];
    double real;
    *ret = call->arg[0].kind == TPL_UNSET ? esp_tpl_real(0) : call->arg[0];
    if (esp_tpl_is_number(&call->self)) {
        *ret = esp_tpl_real(esp_tpl_number(&call->self));
    } else if (call->self.kind == TPL_STR && number_text(run, call->self.str, text, sizeof text) &&
               parse_real(text, &real)) {
        *ret = esp_tpl_real(real);
    }
    return true;
}

static bool needs_number(struct tpl_run *run, const struct tpl_value *value)
{
    return esp_tpl_is_number(value) ||
           (value->kind == TPL_UNDEF
                ? esp_tpl_undefined(run, value)
                : esp_tpl_fail(run, ESP_EINVAL, "a number is needed, not %s", esp_tpl_type(value)));
}

static bool f_abs(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t value;
    if (!needs_number(run, &call->self)) {
        return false;
    }
    if (!esp_tpl_as_int(&call->self, &value)) {
        *ret = esp_tpl_real(fabs(call->self.real));
        return true;
    }
    if (value == INT64_MIN) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the integer is too large");
    }
    *ret = esp_tpl_int(value < 0 ? -value : value);
    return true;
}

static bool round_to(const struct tpl_value *self, int precision, bool ceils, bool floors, struct tpl_value *ret)
{
    double value = esp_tpl_number(self), scale = pow(10, precision);
    if (ceils || floors) {
        *ret = esp_tpl_real((ceils ? ceil(value * scale) : floor(value * scale)) / scale);
    } else if (self->kind != TPL_FLOAT && precision >= 0) {
        *ret = self->kind == TPL_BOOL ? esp_tpl_int(self->truth) : *self;
    } else if (precision < 0 || fabs(value) > 1e15) {
        double rounded = nearbyint(value * scale) / scale;
        bool real = self->kind == TPL_FLOAT || !(fabs(rounded) < 9.2e18);
        *ret = real ? esp_tpl_real(rounded) : esp_tpl_int((int64_t)rounded);
    } else { /* the C library rounds the exact value, as Python does */
        char text[64];
        snprintf(text, sizeof text, "%.*f", precision, value);
        *ret = esp_tpl_real(strtod(text, NULL));
    }
    return true;
}

static bool f_round(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t precision;
    const struct tpl_str *method = NULL;
    if (!needs_number(run, &call->self) || !esp_tpl_arg_int(run, &call->arg[0], 0, &precision) ||
        !esp_tpl_arg_str(run, &call->arg[1], "the method", &method)) {
        return false;
    }
    bool ceils = method != NULL && esp_tpl_str_is(method, "ceil"),
         floors = method != NULL && esp_tpl_str_is(method, "floor");
    if (method != NULL && !ceils && !floors && !esp_tpl_str_is(method, "common")) {
        return esp_tpl_fail(run, ESP_EINVAL, "round: the method must be common, ceil or floor");
    }
    if (precision < -30 || precision > 30) {
        return esp_tpl_fail(run, ESP_EINVAL, "round: the precision must be between -30 and 30");
    }
    return round_to(&call->self, (int)precision, ceils, floors, ret);
}

static bool f_filesizeformat(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    char text[64];
    if (!needs_number(run, &call->self)) {
        return false;
    }
    bool is_binary = esp_tpl_truth(&call->arg[0]);
    double value = esp_tpl_number(&call->self), base = is_binary ? 1024 : 1000, unit = base;
    if (value == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (value < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(value));
    } else {
        int idx = 0;
        for (; idx < 7 && value >= unit * base; idx++) {
            unit *= base;
        }
        snprintf(text, sizeof text, "%.1f %s", value / unit, is_binary ? binary[idx] : decimal[idx]);
    }
    struct tpl_out out = {0};
    return esp_tpl_out_text(run, &out, text, false) && esp_tpl_out_value(run, &out, ret);
}

const struct tpl_builtin *esp_tpl_find_number_filter(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"abs", "", 0, f_abs},
        {"filesizeformat", "binary", 0, f_filesizeformat},
        {"float", "default", 0, f_float},
        {"int", "default,base", 0, f_int},
        {"round", "precision,method", 0, f_round},
    };
    return esp_tpl_find_in(rows, sizeof rows / sizeof rows[0], name, n);
}
