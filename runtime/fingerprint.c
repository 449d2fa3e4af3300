/* XXH3-128 over the model file's values and tensors, and over the build id that the linker gave the program.
 *
 * The build id is found in the notes of the loaded program; a program without one (it takes a linker option to
 * leave it out) has its version for it.
 */
#include "runtime/fingerprint.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/espalier.h"

void esp_fingerprint_add(uint64_t print[2], const void *data, size_t n_bytes)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, n_bytes, print[0] ^ print[1] * 0x9e3779b97f4a7c15u);
    print[0] = hash.low64;
    print[1] ^= hash.high64;
}

static void add_notes(uint64_t print[2], const char *notes, size_t n_bytes)
{
    while (n_bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3, desc = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name > n_bytes || desc > n_bytes || sizeof note + name + desc > n_bytes) {
            return;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + sizeof note, "GNU", 4) == 0) {
            esp_fingerprint_add(print, notes + sizeof note + name, note.n_descsz);
        }
        notes += sizeof note + name + desc;
        n_bytes -= sizeof note + name + desc;
    }
}

/* The first object is the program itself; kernels may be in a library of their own, so all of them count. */
static int add_object(struct dl_phdr_info *info, size_t n_bytes, void *ctx)
{
    (void)n_bytes;
    if (strstr(info->dlpi_name, "vdso") != NULL) {
        return 0; /* the kernel's, with nothing but clocks */
    }
    for (int idx = 0; idx < info->dlpi_phnum; idx++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[idx];
        if (header->p_type == PT_NOTE) {
            add_notes(ctx, (const char *)(uintptr_t)(info->dlpi_addr + header->p_vaddr), header->p_memsz);
        }
    }
    return 0;
}

void esp_fingerprint(const struct esp_gguf *gguf, uint64_t ret_print[2])
{
    ret_print[0] = ret_print[1] = 0;
    esp_fingerprint_add(ret_print, ESP_VERSION, sizeof ESP_VERSION);
    dl_iterate_phdr(add_object, ret_print);
    for (size_t idx = 0; idx < esp_gguf_n_kv(gguf); idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(gguf, idx);
        esp_fingerprint_add(ret_print, kv->key.data, kv->key.n_bytes);
        esp_fingerprint_add(ret_print, kv->data, kv->n_bytes);
    }
    for (size_t idx = 0; idx < esp_gguf_n_tensors(gguf); idx++) {
        const struct esp_gguf_tensor *tensor = esp_gguf_tensor_at(gguf, idx);
        uint64_t shape[6] = {tensor->type, tensor->n_dims, tensor->dims[0], tensor->dims[1], tensor->dims[2],
                             tensor->dims[3]};
        esp_fingerprint_add(ret_print, tensor->name.data, tensor->name.n_bytes);
        esp_fingerprint_add(ret_print, shape, sizeof shape);
        esp_fingerprint_add(ret_print, tensor->data, tensor->n_bytes);
    }
}
