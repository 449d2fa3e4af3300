/* linear and embed: every weight type, odd shapes, every level and thread count, against the reference. */
#include "tests/kernels/check.h"

static const struct esp_dev_config config = {
    .n_rows_max = 216, .n_in_max = 1024, .head_dim_max = 64, .n_ctx_max = 64};

struct shape {
    uint32_t n_rows, n_out, n_in;
};

static struct shape random_shape(enum esp_type type)
{
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 8, 9, 12, 13, 16, 25, 31, 70};
    uint32_t step = esp_type_info((uint32_t)type)->block == 256 ? 256 : 32;
    /* now and then more rows than wait for their sums at a time */
    struct shape s = {
        .n_rows = rnd_below(8) == 0   ? 190 + rnd_below(20)
                  : rnd_below(3) == 0 ? 1 + rnd_below(70)
                                      : rows[rnd_below(sizeof rows / sizeof rows[0])],
        .n_out = 1 + rnd_below(rnd_below(2) == 0 ? 20 : 100),
        .n_in = step * (1 + rnd_below(step == 256 ? 3 : 8)),
    };
    return s;
}

static size_t file_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    const struct esp_type_info *info = esp_type_info((uint32_t)type);
    return (size_t)n_out * (n_in / info->block) * info->bytes;
}

static enum esp_type random_type(void)
{
    for (;;) {
        uint32_t type = rnd_below(ESP_TYPE_COUNT);
        if (esp_type_info(type) != NULL && esp_type_info(type)->runs) {
            return (enum esp_type)type;
        }
    }
}

/* One linear of up to three matrices with one input, on all devices. */
struct linear_case {
    struct shape shape;
    uint32_t n_weights, n_out[3];
    enum esp_type type[3];
    uint8_t *file[3];
    float *bias[3], *x, *want[3];
    uint32_t flags;
};

/* In one range or in two, the later one first. */
static struct esp_weight pack(const struct check_dev *d, enum esp_type type, uint32_t n_out, uint32_t n_in,
                              const void *src, void *dst)
{
    const struct esp_ops *ops = esp_ops_cpu();
    struct esp_weight weight = {0};
    struct esp_pack_args args = {.type = type, .n_out = n_out, .n_in = n_in, .row_end = n_out, .src = src, .dst = dst};
    args.row = rnd_below((n_out + ESP_PACK_ROWS - 1) / ESP_PACK_ROWS) * ESP_PACK_ROWS;
    CHECK(ops->weight_pack(d->dev, &args, &weight) == ESP_OK);
    if (args.row != 0) {
        args.row_end = args.row;
        args.row = 0;
        CHECK(ops->weight_pack(d->dev, &args, &weight) == ESP_OK);
    }
    CHECK(weight.data == dst && weight.n_out == n_out && weight.bytes == ops->weight_bytes(type, n_out, n_in));
    return weight;
}

static void run_linear(const struct linear_case *c, const struct check_dev *d, uint32_t row, uint32_t n_rows,
                       float **ys)
{
    const struct esp_ops *ops = esp_ops_cpu();
    struct esp_weight weights[3];
    struct guarded packed[3];
    struct esp_linear_args args = {.n_weights = c->n_weights, .x = c->x + (size_t)row * c->shape.n_in,
                                   .n_rows = n_rows, .flags = c->flags};
    esp_cpu_level_mask(d->level);
    for (uint32_t w = 0; w < c->n_weights; w++) {
        packed[w] = guarded_make(ops->weight_bytes(c->type[w], c->n_out[w], c->shape.n_in));
        weights[w] = pack(d, c->type[w], c->n_out[w], c->shape.n_in, c->file[w], packed[w].data);
        args.weight[w] = &weights[w];
        args.bias[w] = c->bias[w];
        args.y[w] = ys[w];
    }
    CHECK(ops->linear(d->dev, &args) == ESP_OK);
    for (uint32_t w = 0; w < c->n_weights; w++) {
        guarded_free(&packed[w], "packed weight");
    }
}

static void compare_on(const struct linear_case *c, const struct check_dev *d, uint32_t row, uint32_t n_rows)
{
    struct guarded out[3];
    float *ys[3];
    for (uint32_t w = 0; w < c->n_weights; w++) {
        out[w] = guarded_make((size_t)n_rows * c->n_out[w] * 4);
        ys[w] = (float *)(void *)out[w].data;
        for (size_t i = 0; i < (size_t)n_rows * c->n_out[w]; i++) {
            ys[w][i] = (float)((i + (size_t)row * c->n_out[w]) % 7) - 3;
        }
    }
    run_linear(c, d, row, n_rows, ys);
    for (uint32_t w = 0; w < c->n_weights; w++) {
        char what[128];
        snprintf(what, sizeof what, "linear %s [%u, %u] rows %u+%u", esp_type_info((uint32_t)c->type[w])->name,
                 c->n_out[w], c->shape.n_in, row, n_rows);
        if (c->want[w] != NULL) {
            check_same(c->want[w] + (size_t)row * c->n_out[w], ys[w], (size_t)n_rows * c->n_out[w], what, d->name);
        }
        guarded_free(&out[w], what);
    }
}

static void make_case(struct linear_case *c, enum esp_type type)
{
    *c = (struct linear_case){.shape = random_shape(type), .n_weights = 1 + rnd_below(3)};
    c->flags = rnd_below(2) == 0 ? ESP_LINEAR_ADD : 0;
    c->x = malloc((size_t)c->shape.n_rows * c->shape.n_in * 4);
    rnd_floats(c->x, (size_t)c->shape.n_rows * c->shape.n_in);
    for (uint32_t w = 0; w < c->n_weights; w++) {
        c->type[w] = type;
        while (w > 0 && (c->type[w] = random_type(), c->shape.n_in % esp_type_info((uint32_t)c->type[w])->block != 0)) {
        }
        c->n_out[w] = w == 0 ? c->shape.n_out : 1 + rnd_below(40);
        c->file[w] = malloc(file_bytes(c->type[w], c->n_out[w], c->shape.n_in));
        rnd_blocks(c->type[w], c->file[w],
                   (size_t)c->n_out[w] * c->shape.n_in / esp_type_info((uint32_t)c->type[w])->block);
        c->bias[w] = rnd_below(2) == 0 ? NULL : malloc((size_t)c->n_out[w] * 4);
        if (c->bias[w] != NULL) {
            rnd_floats(c->bias[w], c->n_out[w]);
        }
    }
}

static void free_case(struct linear_case *c)
{
    for (uint32_t w = 0; w < c->n_weights; w++) {
        free(c->file[w]);
        free(c->bias[w]);
        free(c->want[w]);
    }
    free(c->x);
}

static void check_type(enum esp_type type)
{
    struct linear_case c;
    make_case(&c, type);
    float *want[3] = {NULL};
    for (uint32_t w = 0; w < c.n_weights; w++) {
        want[w] = malloc((size_t)c.shape.n_rows * c.n_out[w] * 4);
        for (size_t i = 0; i < (size_t)c.shape.n_rows * c.n_out[w]; i++) {
            want[w][i] = (float)(i % 7) - 3;
        }
    }
    run_linear(&c, &check_devs[0], 0, c.shape.n_rows, want);
    memcpy(c.want, want, sizeof want);
    for (int d = 0; d < check_n_devs; d++) {
        compare_on(&c, &check_devs[d], 0, c.shape.n_rows);
        uint32_t row = rnd_below(c.shape.n_rows);
        compare_on(&c, &check_devs[d], row, 1); /* a row alone has the bits it has in the batch */
        compare_on(&c, &check_devs[d], row, 1 + rnd_below(c.shape.n_rows - row));
    }
    free_case(&c);
}

static void test_linear(void)
{
    REQUIRE(check_open(&config));
    for (uint32_t type = 0; type < ESP_TYPE_COUNT; type++) {
        for (int round = 0; round < 6 && esp_type_info(type) != NULL && esp_type_info(type)->runs; round++) {
            check_type((enum esp_type)type);
        }
    }
    check_close();
}

/* ESP_LINEAR_GLU against linear and glu one after the other, on the reference, for all rows and some of them. */
static void check_glu_on(const struct linear_case *c, int d, const float *want, uint32_t row, uint32_t n_rows)
{
    const struct esp_ops *ops = esp_ops_cpu();
    struct esp_weight weights[2];
    struct guarded packed[2], out = guarded_make((size_t)n_rows * c->n_out[0] * 4);
    struct esp_linear_args args = {.n_weights = 2, .x = c->x + (size_t)row * c->shape.n_in, .n_rows = n_rows,
                                   .y = {(float *)(void *)out.data}, .flags = ESP_LINEAR_GLU,
                                   .act = c->n_out[0] % 2 == 0 ? ESP_ACT_SILU : ESP_ACT_GELU_TANH};
    esp_cpu_level_mask(check_devs[d].level);
    for (uint32_t w = 0; w < 2; w++) {
        packed[w] = guarded_make(ops->weight_bytes(c->type[w], c->n_out[w], c->shape.n_in));
        weights[w] = pack(&check_devs[d], c->type[w], c->n_out[w], c->shape.n_in, c->file[w], packed[w].data);
        args.weight[w] = &weights[w];
    }
    CHECK(ops->linear(check_devs[d].dev, &args) == ESP_OK);
    char what[96];
    snprintf(what, sizeof what, "glu %s [%u, %u] rows %u+%u", esp_type_info((uint32_t)c->type[0])->name, c->n_out[0],
             c->shape.n_in, row, n_rows);
    check_same(want + (size_t)row * c->n_out[0], out.data, (size_t)n_rows * c->n_out[0], what, check_devs[d].name);
    args.bias[1] = c->x;
    CHECK(ops->linear(check_devs[d].dev, &args) == ESP_EINVAL, "glu with a bias");
    guarded_free(&packed[0], "gate");
    guarded_free(&packed[1], "up");
    guarded_free(&out, what);
}

static void check_glu(enum esp_type type)
{
    struct linear_case c = {.shape = random_shape(type), .n_weights = 2, .type = {type, type}};
    size_t n = (size_t)c.shape.n_rows * c.shape.n_out;
    float *ys[2] = {malloc(n * 4), malloc(n * 4)};
    c.x = malloc((size_t)c.shape.n_rows * c.shape.n_in * 4);
    rnd_floats(c.x, (size_t)c.shape.n_rows * c.shape.n_in);
    for (uint32_t w = 0; w < 2; w++) {
        c.n_out[w] = c.shape.n_out;
        c.file[w] = malloc(file_bytes(type, c.n_out[w], c.shape.n_in));
        rnd_blocks(type, c.file[w], (size_t)c.n_out[w] * c.shape.n_in / esp_type_info((uint32_t)type)->block);
    }
    run_linear(&c, &check_devs[0], 0, c.shape.n_rows, ys);
    struct esp_glu_args glu = {.gate = ys[0], .up = ys[1], .out = ys[0], .n_rows = c.shape.n_rows,
                               .dim = c.n_out[0], .act = c.n_out[0] % 2 == 0 ? ESP_ACT_SILU : ESP_ACT_GELU_TANH};
    CHECK(esp_ops_cpu()->glu(check_devs[0].dev, &glu) == ESP_OK);
    for (int d = 0; d < check_n_devs; d++) {
        check_glu_on(&c, d, ys[0], 0, c.shape.n_rows);
        uint32_t row = rnd_below(c.shape.n_rows);
        check_glu_on(&c, d, ys[0], row, 1 + rnd_below(c.shape.n_rows - row));
    }
    c.n_weights = 2;
    free_case(&c);
    free(ys[0]);
    free(ys[1]);
}

static void test_glu(void)
{
    REQUIRE(check_open(&config));
    for (uint32_t type = 0; type < ESP_TYPE_COUNT; type++) {
        const struct esp_type_info *info = esp_type_info(type);
        for (int round = 0; round < 4 && info != NULL && info->runs && info->block > 1; round++) {
            check_glu((enum esp_type)type);
        }
    }
    check_close();
}

/* All values of the blocks at one end of their range, scales left as they are; x all ones or of both signs. */
static void make_extreme(struct linear_case *c, float *x, int pattern)
{
    const struct esp_type_info *info = esp_type_info((uint32_t)c->type[0]);
    static const uint8_t fill[] = {0xff, 0xff, 0x80, 0x7f};
    size_t n_blocks = (size_t)c->n_out[0] * c->shape.n_in / info->block;
    rnd_blocks(c->type[0], c->file[0], n_blocks);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *block = c->file[0] + b * info->bytes;
        /* scales stand at both ends of the blocks */
        memset(block + 4, fill[pattern], info->bytes - 8);
    }
    for (size_t i = 0; i < (size_t)c->shape.n_rows * c->shape.n_in; i++) {
        x[i] = pattern % 2 == 0 || i % 3 == 0 ? 1.0f : -1.0f;
    }
}

/* The largest values every format can hold, against the largest inputs: nothing may saturate. */
static void check_extreme(enum esp_type type, int pattern)
{
    static float x[5 * 256];
    struct linear_case c = {.shape = {.n_rows = 5, .n_out = 17, .n_in = 256}, .n_weights = 1, .type = {type},
                            .n_out = {17}, .x = x};
    c.file[0] = malloc(file_bytes(type, 17, 256));
    c.want[0] = malloc(5 * 17 * 4);
    make_extreme(&c, x, pattern);
    run_linear(&c, &check_devs[0], 0, 5, c.want);
    for (int d = 1; d < check_n_devs; d++) {
        compare_on(&c, &check_devs[d], 0, 5);
    }
    free(c.file[0]);
    free(c.want[0]);
}

static void test_linear_extremes(void)
{
    REQUIRE(check_open(&config));
    for (uint32_t type = ESP_TYPE_Q4_0; type <= ESP_TYPE_Q6_K; type++) {
        for (int pattern = 0; pattern < 4 && esp_type_info(type) != NULL; pattern++) {
            check_extreme((enum esp_type)type, pattern);
        }
    }
    check_close();
}

static void check_embed(enum esp_type type)
{
    const struct esp_ops *ops = esp_ops_cpu();
    struct shape s = random_shape(type);
    uint8_t *file = malloc(file_bytes(type, s.n_out, s.n_in));
    uint32_t ids[216];
    rnd_blocks(type, file, (size_t)s.n_out * s.n_in / esp_type_info((uint32_t)type)->block);
    for (uint32_t r = 0; r < s.n_rows; r++) {
        ids[r] = rnd_below(s.n_out);
    }
    float *want = malloc((size_t)s.n_rows * s.n_in * 4), scale = rnd_below(2) == 0 ? 1 : 25.298221f;
    for (uint32_t r = 0; r < s.n_rows; r++) {
        esp_dequantize(type, file + file_bytes(type, ids[r], s.n_in), s.n_in, want + (size_t)r * s.n_in);
        for (uint32_t i = 0; i < s.n_in; i++) {
            want[(size_t)r * s.n_in + i] = want[(size_t)r * s.n_in + i] * scale;
        }
    }
    for (int d = 0; d < check_n_devs; d++) {
        esp_cpu_level_mask(check_devs[d].level);
        struct guarded packed = guarded_make(ops->weight_bytes(type, s.n_out, s.n_in));
        struct guarded x = guarded_make((size_t)s.n_rows * s.n_in * 4);
        struct esp_weight weight = pack(&check_devs[d], type, s.n_out, s.n_in, file, packed.data);
        struct esp_embed_args args = {.weight = &weight, .ids = ids, .scale = scale, .n_rows = s.n_rows,
                                      .x = (float *)(void *)x.data};
        CHECK(ops->embed(check_devs[d].dev, &args) == ESP_OK);
        check_same(want, x.data, (size_t)s.n_rows * s.n_in, esp_type_info((uint32_t)type)->name, check_devs[d].name);
        guarded_free(&x, "embed");
        guarded_free(&packed, "packed");
    }
    free(want);
    free(file);
}

static void test_embed(void)
{
    REQUIRE(check_open(&config));
    for (uint32_t type = 0; type < ESP_TYPE_COUNT; type++) {
        for (int round = 0; round < 2 && esp_type_info(type) != NULL && esp_type_info(type)->runs; round++) {
            check_embed((enum esp_type)type);
        }
    }
    check_close();
}

static void test_refusals(void)
{
    const struct esp_ops *ops = esp_ops_cpu();
    REQUIRE(check_open(&config));
    CHECK(ops->weight_bytes(ESP_TYPE_Q4_0, 16, 48) == 0);
    CHECK(ops->weight_bytes(ESP_TYPE_Q4_K, 16, 128) == 0);
    CHECK(ops->weight_bytes((enum esp_type)20, 16, 64) == 0);
    CHECK(ops->weight_bytes(ESP_TYPE_F32, 0, 64) == 0);
    struct esp_dev *dev = NULL;
    struct esp_err err;
    struct esp_dev_config bad = config;
    bad.n_threads = 0;
    CHECK(ops->dev_open(&bad, &dev, &err) == ESP_EINVAL && dev == NULL);
    bad = config;
    bad.n_threads = 1;
    bad.head_dim_max = 80;
    CHECK(ops->dev_open(&bad, &dev, &err) == ESP_EUNSUPPORTED && dev == NULL);
    void *ptr = NULL;
    CHECK(ops->alloc(check_devs[0].dev, 0, 100, &ptr) == ESP_OK && ((uintptr_t)ptr & 63) == 0);
    CHECK(ops->alloc(check_devs[0].dev, 0, 3 << 20, &ptr) == ESP_OK && ((uintptr_t)ptr & 63) == 0);
    float rows[33 * 32];
    struct esp_pack_args pack_args = {.type = ESP_TYPE_F32, .n_out = 33, .n_in = 32, .src = rows, .dst = rows};
    struct esp_weight weight;
    static const uint32_t no_ranges[][2] = {{0, 0}, {0, 34}, {8, 16}, {0, 17}, {32, 32}, {48, 64}};
    for (size_t i = 0; i < sizeof no_ranges / sizeof no_ranges[0]; i++) {
        pack_args.row = no_ranges[i][0];
        pack_args.row_end = no_ranges[i][1];
        CHECK(ops->weight_pack(check_devs[0].dev, &pack_args, &weight) == ESP_EINVAL, "rows %u to %u",
              pack_args.row, pack_args.row_end);
    }
    ops->seal(check_devs[0].dev);
    CHECK(ops->alloc(check_devs[0].dev, 0, 100, &ptr) == ESP_ESTATE);
    check_close();
}

ESP_TEST_MAIN(T(test_linear), T(test_glu), T(test_linear_extremes), T(test_embed), T(test_refusals))
