/* Answers as parts: what is told to the sink, for every way to cut the text into pieces. */
#include "frontend/turn.h"

#include "frontend/jsontext.h"
#include "tests/esptest.h"

/* Only its names and the kinds of arguments matter here. */
static struct esp_tool_arg get_args[] = {{.name = "city", .kind = ESP_ARG_STRING},
                                         {.name = "n", .kind = ESP_ARG_OTHER},
                                         {.name = "any", .kind = ESP_ARG_EITHER}};
static struct esp_tool tool_items[] = {{.name = "get_w", .allowed = true, .args = get_args, .n_args = 3},
                                       {.name = "list-all", .allowed = true},
                                       {.name = "other", .allowed = false}};
static struct esp_tools tools = {.items = tool_items, .n = 3, .choice = ESP_TOOLS_AUTO, .parallel = true};

/* "T:text|C:name(args)|R:reasoning", and a "!" when the steps do not fit together. */
static struct esp_buf log_buf;

static void on_begin(void *ctx, const struct esp_part *part)
{
    esp_buf_str(&log_buf, log_buf.n > 0 ? "|" : "");
    if (part->kind == ESP_PART_CALL) {
        esp_buf_printf(&log_buf, "C%u:%s(", part->call_index, part->name);
        esp_buf_str(&log_buf, part->id[0] == '\0' ? "!" : "");
    } else {
        esp_buf_str(&log_buf, part->kind == ESP_PART_TEXT ? "T:" : "R:");
    }
    esp_buf_str(&log_buf, part->text.n > 0 ? "!" : "");
}

static void on_piece(void *ctx, const struct esp_part *part, const char *text, size_t n_bytes)
{
    bool fits = n_bytes > 0 && part->text.n >= n_bytes && !part->ended &&
                memcmp(part->text.data + part->text.n - n_bytes, text, n_bytes) == 0;
    esp_buf_str(&log_buf, fits ? "" : "!");
    esp_buf_add(&log_buf, text, n_bytes);
}

static void on_end(void *ctx, const struct esp_part *part)
{
    esp_buf_str(&log_buf, part->kind == ESP_PART_CALL ? ")" : "");
}

static const struct esp_turn_sink sink = {on_begin, on_piece, on_end};

static void run(const struct esp_turn_setup *setup, const char *text, size_t step, uint32_t *ret_whole)
{
    struct esp_turn turn;
    size_t n = strlen(text);
    esp_buf_init(&log_buf, ESP_TAG_MISC, 1u << 20);
    esp_turn_init(&turn, setup, &sink, NULL);
    for (size_t at = 0; at < n;) {
        size_t take = n - at < step ? n - at : step;
        if ((unsigned char)text[at] == 0xff) {
            take = ESP_CODE_BYTES; /* codes come whole */
        } else {
            for (size_t idx = 0; idx < take; idx++) {
                take = (unsigned char)text[at + idx] == 0xff ? idx : take;
            }
        }
        esp_turn_text(&turn, text + at, take);
        at += take;
    }
    esp_turn_end(&turn);
    CHECK(!turn.failed, "failed at %s", text);
    *ret_whole = turn.n_calls_whole;
    esp_turn_finish(&turn);
}

static void check(const struct esp_turn_setup *setup, const char *text, const char *want, uint32_t n_whole)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        uint32_t got = 0;
        run(setup, text, step, &got);
        bool same = log_buf.n == strlen(want) && (log_buf.n == 0 || memcmp(log_buf.data, want, log_buf.n) == 0);
        CHECK(same && got == n_whole, "in steps of %zu, %s gives %s with %u whole calls, not %s", step, text,
              log_buf.n == 0 ? "" : log_buf.data, got, want);
        esp_buf_finish(&log_buf);
    }
}

static struct esp_form generic(void)
{
    struct esp_form form = {0};
    esp_form_generic(&form);
    return form;
}

static void test_plain(void)
{
    struct esp_turn_setup none = {0};
    check(&none, " a <tool_call>{ b ", "T: a <tool_call>{ b ", 0);
    struct esp_form form = generic();
    struct esp_tools off = tools;
    off.choice = ESP_TOOLS_NONE;
    struct esp_turn_setup setup = {.form = &form, .tools = &off};
    check(&setup, "a\n<tool_call>{\"name\":\"get_w\"}</tool_call>", "T:a\n<tool_call>{\"name\":\"get_w\"}</tool_call>",
          0);
    setup.tools = &tools;
    check(&setup, "", "", 0);
    check(&setup, " x <tool \n", "T: x <tool \n", 0);
}

static void test_json_calls(void)
{
    struct esp_form form = generic();
    struct esp_turn_setup setup = {.form = &form, .tools = &tools};
    check(&setup, "<tool_call>\n{\"name\": \"get_w\", \"arguments\": {\"a\": \"}\\\"{\"}}\n</tool_call>",
          "C0:get_w({\"a\": \"}\\\"{\"})", 1);
    check(&setup,
          "Look: "
          "\n<tool_call>{\"name\":\"list-all\"}</tool_call><tool_call>{\"name\":\"get_w\",\"arguments\":{}}</"
          "tool_call>\n",
          "T:Look:|C0:list-all({})|C1:get_w({})", 2);
    check(&setup, "<tool_call>\n{\"name\": \"get_w\", \"arguments\": {\"a\": [1, 2", "C0:get_w({\"a\": [1, 2)", 0);
    check(&setup, "<tool_call>\n{\"name\": \"get_w\", \"arguments\": {\"a\": 1}", "C0:get_w({\"a\": 1})", 1);
    check(&setup, "<tool_call>\n{\"name\": \"get_w\", \"arguments\": {}}\n</tool_call>\nDone. ",
          "C0:get_w({})|T:Done. ", 1);
}

static void test_no_calls(void)
{
    struct esp_form form = generic();
    struct esp_turn_setup setup = {.form = &form, .tools = &tools};
    check(&setup, "ok <tool_call>{\"name\": oops", "T:ok <tool_call>{\"name\": oops", 0);
    check(&setup, "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
          "T:<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>", 0);
    check(&setup, "<tool_call>{\"name\": \"get", "T:<tool_call>{\"name\": \"get", 0);
    check(&setup, "<tool_call> <tool_call>{\"name\": \"get_w\", \"arguments\": {}}\n</tool_call>",
          "T:<tool_call>|C0:get_w({})", 1);
    check(&setup, "<tool_call>{\"name\": \"get_w\", \"arguments\": 5}",
          "T:<tool_call>{\"name\": \"get_w\", \"arguments\": 5}", 0);
}

static void test_reasoning(void)
{
    struct esp_form form = generic();
    form.think_open = (struct esp_lit){"<think>", 7};
    form.think_close = (struct esp_lit){"</think>", 8};
    struct esp_turn_setup setup = {.form = &form, .tools = &tools};
    check(&setup, "<think>\nHm.\n</think>\n\nYes.", "R:Hm.|T:Yes.", 0);
    check(&setup, "\n<think>\n</think>\n\nYes <think>", "T:Yes <think>", 0);
    check(&setup, "Yes", "T:Yes", 0);
    check(&setup, "<think>a<b</thin", "R:a<b</thin", 0);
    setup.thinking = true;
    check(&setup, "\nHm </think><tool_call>\n{\"name\": \"list-all\", \"arguments\": {}}\n</tool_call>",
          "R:Hm|C0:list-all({})", 1);
}

static const struct esp_piece tagged_pieces[] = {{ESP_SLOT_LIT, {"<tool_call>\n<function=", 22}},
                                                 {ESP_SLOT_NAME, {"", 0}},
                                                 {ESP_SLOT_ARGS, {"", 0}},
                                                 {ESP_SLOT_LIT, {"</function>\n</tool_call>", 24}}};

static void test_tagged(void)
{
    struct esp_form form = {.n_pieces = 4, .is_tagged = true, .sep = {"\n", 1}, .trigger = {"<tool_call>", 11}};
    memcpy(form.pieces, tagged_pieces, sizeof tagged_pieces);
    form.tagged =
        (struct esp_tagged){.open = {">\n", 2}, .begin = {"<parameter=", 11}, .close = {"\n", 1}, .sep = {"\n", 1}};
    form.tagged.mid[0] = form.tagged.mid[1] = (struct esp_lit){">\n", 2};
    form.tagged.end[0] = form.tagged.end[1] = (struct esp_lit){"\n</parameter>", 13};
    form.tagged.none = (struct esp_lit){">\n", 2};
    struct esp_turn_setup setup = {.form = &form, .tools = &tools};
    check(&setup,
          "<tool_call>\n<function=get_w>\n<parameter=city>\n \"A\"\nb </x\n</parameter>\n<parameter=n>\n{\"a\": "
          "3}\n</parameter>\n"
          "<parameter=any>\n7\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=list-all>\n</"
          "function>\n</tool_call>",
          "C0:get_w({\"city\":\" \\\"A\\\"\\nb </x\",\"n\":{\"a\": 3},\"any\":7})|C1:list-all({})", 2);
    check(&setup, "<tool_call>\n<function=get_w>\n<parameter=any>\nseven\n</parameter>\n</function>\n</tool_call>",
          "C0:get_w({\"any\":\"seven\"})", 1);
    check(&setup, "<tool_call>\n<function=get_w>\n<parameter=city>\nRom", "C0:get_w({\"city\":\"Rom)", 0);
}

/* Control tokens: 257 is <call>, 258 is </call>, 259 is a quote mark. */
#define CALL "\xff\x81\x84\x80\x80"
#define END "\xff\x82\x84\x80\x80"
#define MARK "\xff\x83\x84\x80\x80"

static void test_control_tokens(void)
{
    struct esp_form form = {.n_pieces = 4, .is_tagged = true, .trigger = {CALL, 5}, .ids = ESP_ID_COUNTED};
    form.pieces[0] = (struct esp_piece){ESP_SLOT_LIT, {CALL "call:", 10}};
    form.pieces[1] = (struct esp_piece){ESP_SLOT_NAME, {"", 0}};
    form.pieces[2] = (struct esp_piece){ESP_SLOT_ARGS, {"", 0}};
    form.pieces[3] = (struct esp_piece){ESP_SLOT_LIT, {END, 5}};
    form.tagged = (struct esp_tagged){.open = {"{", 1}, .close = {"}", 1}, .sep = {",", 1}, .none = {"{}", 2}};
    form.tagged.mid[0] = (struct esp_lit){":" MARK, 6};
    form.tagged.mid[1] = (struct esp_lit){":", 1};
    form.tagged.end[0] = (struct esp_lit){MARK, 5};
    struct esp_turn_setup setup = {.form = &form, .tools = &tools};
    check(&setup,
          "Go " CALL "call:get_w{city:" MARK "a,}" MARK ",n:[1," MARK "x" MARK ",{k:null}]}" END CALL
          "call:list-all{}" END,
          "T:Go|C0:get_w({\"city\":\"a,}\",\"n\":[1,\"x\",{\"k\":null}]})|C1:list-all({})", 2);
    check(&setup, "<call>call:get_w{}", "T:<call>call:get_w{}", 0);
    uint32_t token = esp_code_token(CALL);
    CHECK(token == 257, "the code is of %u", token);
}

ESP_TEST_MAIN(T(test_plain), T(test_json_calls), T(test_no_calls), T(test_reasoning), T(test_tagged),
              T(test_control_tokens))
