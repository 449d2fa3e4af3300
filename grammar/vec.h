/* Growth of plain arrays, the one way it is done in this folder.
 *
 * `esp_vec_grow(&array, &cap, need)` makes room for at least `need` items, doubling. It is a macro so
 * that the item size follows the pointer. False when out of memory; the array is then unchanged.
 * Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_VEC_H
#define ESP_GRAMMAR_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/alloc.h"

static inline bool esp_vec_room(void *array_ptr, uint32_t *cap, uint64_t need, size_t item_bytes)
{
    if (need <= *cap) {
        return true;
    }
    uint64_t room = *cap < 16 ? 16 : *cap;
    while (room < need) {
        room *= 2;
    }
    if (room > UINT32_MAX / 2) {
        return false;
    }
    void *array;
    memcpy(&array, array_ptr, sizeof array);
    void *grown = esp_realloc(ESP_TAG_GRAMMAR, array, (size_t)room * item_bytes);
    if (grown == NULL) {
        return false;
    }
    memcpy(array_ptr, &grown, sizeof grown);
    *cap = (uint32_t)room;
    return true;
}

#define esp_vec_grow(array, cap, need) esp_vec_room((array), (cap), (need), sizeof **(array))

#endif
