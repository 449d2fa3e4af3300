/* `espalier run`: one prompt, or a chat on a terminal. A client of runtime/espalier.h like any other.
 *
 * The answer streams to stdout and ends with one newline; everything else goes to stderr. In a chat the whole
 * history is sent each time and the engine's cache makes that cheap. Ctrl-C cancels the answer that runs; at
 * the prompt it ends the chat, as /quit and the end of input do. Thread: main; the engine has its own.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "frontend/answer.h"
#include "frontend/chat.h"
#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/file.h"

#define PROMPT_BYTES_MAX ESP_RENDER_BYTES_MAX
#define CONSTRAINT_BYTES_MAX (1024u * 1024u)
#define POLL_NS 50000000 /* how soon Ctrl-C is seen */

static volatile sig_atomic_t interrupted;

struct session {
    const struct esp_options *options;
    esp_engine *engine;
    const esp_vocab *vocab; /* the engine's */
    struct esp_chat *chat;
    esp_grammar *grammar;
    struct esp_prompt prompt;
    struct esp_buf text;   /* what the user said */
    struct esp_buf answer; /* all of the last answer */
    bool deaf;             /* nobody reads standard output any more */
};

static void on_interrupt(int number)
{
    interrupted = 1;
}

static int fail(const struct esp_err *err)
{
    fprintf(stderr, "espalier: %s\n", err->message);
    return ESP_EXIT_FAILED;
}

static int usage(const char *message)
{
    fprintf(stderr, "espalier: run: %s\n", message);
    return ESP_EXIT_USAGE;
}

/* ---- Setting up -------------------------------------------------------------------------------- */

static int check_options(const struct esp_options *options)
{
    int n_prompts = (options->prompt != NULL) + (options->file != NULL) + (options->positional != NULL);
    int n_constraints =
        (options->schema != NULL) + (options->regex != NULL) + (options->grammar != NULL) + (options->choice != NULL);
    if (n_prompts > 1) {
        return usage("one of -p, -f and - can be given");
    }
    if (n_constraints > 1) {
        return usage("one of --schema, --regex, --grammar and --choice can be given");
    }
    if (n_prompts == 0 && options->raw) {
        return usage("--raw needs a prompt: -p TEXT, -f FILE or -");
    }
    if (n_prompts == 0 && !isatty(STDIN_FILENO)) {
        return usage("no prompt: -p TEXT, -f FILE or -, or a terminal to chat on");
    }
    return ESP_EXIT_DONE;
}

/* "a,b,c" as a JSON array. */
static esp_status choice_json(const char *choice, struct esp_buf *out, struct esp_err *err)
{
    json_t *list = json_array();
    for (const char *at = choice;;) {
        size_t n = strcspn(at, ",");
        if (json_array_append_new(list, json_stringn(at, n)) != 0) {
            json_decref(list);
            return esp_fail(err, ESP_EINVAL, "--choice: the texts must be UTF-8");
        }
        if (at[n] == '\0') {
            break;
        }
        at += n + 1;
    }
    size_t n = json_dumpb(list, NULL, 0, JSON_COMPACT);
    char *room = esp_buf_reserve(out, n);
    if (room != NULL) {
        json_dumpb(list, room, n, JSON_COMPACT);
        out->n += n;
    }
    json_decref(list);
    return room != NULL ? ESP_OK : esp_fail(err, ESP_ELIMIT, "--choice: the texts are too long");
}

static esp_status compile_constraint(struct session *session, struct esp_err *err)
{
    const struct esp_options *options = session->options;
    const char *kind = options->schema != NULL    ? "schema"
                       : options->regex != NULL   ? "regex"
                       : options->grammar != NULL ? "gbnf"
                       : options->choice != NULL  ? "choice"
                                                  : NULL;
    if (kind == NULL) {
        return ESP_OK;
    }
    struct esp_buf text;
    esp_status status = ESP_OK;
    esp_buf_init(&text, ESP_TAG_MISC, CONSTRAINT_BYTES_MAX);
    if (options->regex != NULL) {
        esp_buf_str(&text, options->regex);
    } else if (options->choice != NULL) {
        status = choice_json(options->choice, &text, err);
    } else {
        status = esp_file_read(options->schema != NULL ? options->schema : options->grammar, &text, err);
    }
    if (status == ESP_OK) {
        status =
            esp_vocab_grammar(session->vocab, kind, text.n == 0 ? "" : text.data, text.n, NULL, &session->grammar, err);
        if (status != ESP_OK && err->place[0] != '\0') {
            fprintf(stderr, "espalier: %s: at %s: %s\n", kind, err->place, err->keyword);
        }
    }
    esp_buf_finish(&text);
    return status;
}

static esp_status open_chat(struct session *session, struct esp_err *err)
{
    const char *path = session->options->chat_template;
    if (path == NULL) {
        return esp_chat_open(session->vocab, NULL, &session->chat, err);
    }
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, ESP_TEMPLATE_BYTES_MAX);
    esp_status status = esp_file_read(path, &text, err);
    if (status == ESP_OK) {
        status = esp_chat_open(session->vocab, text.n == 0 ? "" : text.data, &session->chat, err);
    }
    esp_buf_finish(&text);
    return status;
}

static esp_status open_session(struct session *session, struct esp_err *err)
{
    struct esp_config config = esp_options_engine(session->options);
    esp_prompt_init(&session->prompt);
    esp_buf_init(&session->text, ESP_TAG_MISC, PROMPT_BYTES_MAX);
    esp_buf_init(&session->answer, ESP_TAG_MISC, PROMPT_BYTES_MAX);
    esp_status status = esp_engine_open(&config, &session->engine, err);
    if (status != ESP_OK) {
        return status;
    }
    session->vocab = esp_engine_vocab(session->engine);
    status = open_chat(session, err);
    return status == ESP_OK ? compile_constraint(session, err) : status;
}

static void close_session(struct session *session)
{
    esp_chat_close(session->chat);
    esp_prompt_finish(&session->prompt);
    esp_buf_finish(&session->text);
    esp_buf_finish(&session->answer);
    esp_grammar_unref(session->grammar);
    esp_engine_close(session->engine);
}

/* ---- One answer -------------------------------------------------------------------------------- */

static void print_new(struct session *session, struct esp_buf *piece)
{
    session->deaf = session->deaf || !esp_output_write("run", piece->data, piece->n);
    esp_buf_add(&session->answer, piece->data, piece->n);
    esp_buf_clear(piece);
}

/* Prints tokens until the request is done. */
static struct esp_event stream(struct session *session, esp_request_id id)
{
    struct esp_answer answer;
    struct esp_buf piece;
    struct esp_event event = {.kind = ESP_EVENT_TOKEN};
    bool cancelled = false;
    esp_answer_init(&answer, session->vocab, NULL, 0);
    esp_buf_init(&piece, ESP_TAG_MISC, PROMPT_BYTES_MAX);
    while (event.kind != ESP_EVENT_DONE) {
        bool came = esp_poll(session->engine, POLL_NS, &event);
        if ((interrupted || session->deaf) && !cancelled) {
            esp_cancel(session->engine, id);
            cancelled = true;
        }
        if (!came) {
            event.kind = ESP_EVENT_TOKEN;
        } else if (event.kind == ESP_EVENT_TOKEN && !cancelled) {
            esp_answer_add(&answer, event.token, &piece);
            if (piece.n > 0) {
                print_new(session, &piece);
            }
        }
    }
    esp_answer_end(&answer, &piece);
    if (piece.n > 0) {
        print_new(session, &piece);
    }
    session->deaf = session->deaf || !esp_output_write("run", "\n", 1);
    esp_buf_finish(&piece);
    esp_answer_finish(&answer);
    return event;
}

/* Runs the prompt in session->prompt. */
static int generate(struct session *session)
{
    const struct esp_options *options = session->options;
    struct esp_engine_info info;
    esp_engine_get_info(session->engine, &info);
    struct esp_request request = {
        .tokens = (const uint32_t *)(const void *)session->prompt.ids.data,
        .n_tokens = esp_prompt_n_tokens(&session->prompt),
        .n_max = options->max_tokens == ESP_AUTO ? info.n_ctx : options->max_tokens,
        .n = 1,
        .sampling = esp_sampling_default(),
        .grammar = session->grammar,
    };
    request.sampling.temperature = (float)options->temperature;
    request.sampling.top_p = (float)options->top_p;
    request.sampling.min_p = (float)options->min_p;
    request.sampling.top_k = options->top_k;
    request.sampling.seed = options->seed;
    struct esp_err err = {0};
    esp_request_id id;
    esp_buf_clear(&session->answer);
    if (request.n_tokens == 0) {
        esp_fail(&err, ESP_EINVAL, "the prompt is empty");
        return fail(&err);
    }
    if (esp_submit(session->engine, &request, &id, &err) != ESP_OK) {
        return fail(&err);
    }
    struct esp_event done = stream(session, id);
    if (done.finish == ESP_FINISH_ERROR) {
        fprintf(stderr, "espalier: %s\n", done.error);
    }
    bool ended = done.finish == ESP_FINISH_STOP || done.finish == ESP_FINISH_LENGTH;
    return ended && !session->deaf ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
}

static bool add_message(json_t *messages, const char *role, const struct esp_buf *text)
{
    json_t *content = json_stringn(text->n == 0 ? "" : text->data, text->n);
    return content != NULL &&
           json_array_append_new(messages, json_pack("{s:s,s:o}", "role", role, "content", content)) == 0;
}

static int answer_messages(struct session *session, json_t *messages)
{
    struct esp_err err = {0};
    json_t *request = json_pack("{s:O}", "messages", messages);
    esp_status status = request != NULL ? esp_chat_prompt(session->chat, request, &session->prompt, &err)
                                        : esp_fail(&err, ESP_ENOMEM, "out of memory");
    json_decref(request);
    if (status == ESP_EUNSUPPORTED) {
        fprintf(stderr, "espalier: %s, or continue a text with --raw\n", err.message);
        return ESP_EXIT_FAILED;
    }
    return status == ESP_OK ? generate(session) : fail(&err);
}

/* ---- The two ways to run ----------------------------------------------------------------------- */

static int run_once(struct session *session)
{
    const struct esp_options *options = session->options;
    struct esp_err err = {0};
    esp_status status = ESP_OK;
    if (options->prompt != NULL) {
        esp_buf_str(&session->text, options->prompt);
    } else {
        status = esp_file_read(options->file != NULL ? options->file : "-", &session->text, &err);
    }
    if (status == ESP_OK && session->text.failed) {
        status = esp_fail(&err, ESP_ELIMIT, "the prompt is longer than %u bytes", PROMPT_BYTES_MAX);
    }
    if (status == ESP_OK && options->raw) {
        status = esp_chat_plain(session->chat, session->text.n == 0 ? "" : session->text.data, session->text.n,
                                &session->prompt, &err);
    }
    if (status != ESP_OK || options->raw) {
        return status == ESP_OK ? generate(session) : fail(&err);
    }
    json_t *messages = json_array();
    int code = ESP_EXIT_FAILED;
    if (add_message(messages, "user", &session->text)) {
        code = answer_messages(session, messages);
    } else {
        fprintf(stderr, "espalier: the prompt is not UTF-8\n");
    }
    json_decref(messages);
    return code;
}

/* One line from the terminal. False at the end of input and after Ctrl-C. */
static bool read_line(struct esp_buf *line)
{
    esp_buf_clear(line);
    fputs("> ", stderr);
    int c;
    while ((c = getchar()) != EOF && c != '\n') {
        esp_buf_char(line, (char)c);
    }
    return c != EOF && !interrupted;
}

static int run_chat(struct session *session)
{
    json_t *messages = json_array();
    int code = ESP_EXIT_DONE;
    fprintf(stderr, "Chat with %s. /quit ends it, Ctrl-C stops an answer.\n", session->options->model);
    while (code == ESP_EXIT_DONE && read_line(&session->text)) {
        bool quits = session->text.n == 5 && memcmp(session->text.data, "/quit", 5) == 0;
        if (quits) {
            break;
        }
        if (session->text.n == 0) {
            continue;
        }
        if (!add_message(messages, "user", &session->text)) {
            fprintf(stderr, "espalier: the line is not UTF-8\n");
            continue;
        }
        code = answer_messages(session, messages);
        if (interrupted) { /* what was said until then stays said */
            interrupted = 0;
            code = ESP_EXIT_DONE;
        }
        if (code != ESP_EXIT_DONE && json_array_size(messages) > 1) { /* such as a full context: the chat goes on */
            json_array_remove(messages, json_array_size(messages) - 1);
            code = ESP_EXIT_DONE;
            continue;
        }
        if (code == ESP_EXIT_DONE && !add_message(messages, "assistant", &session->answer)) {
            code = ESP_EXIT_FAILED;
        }
    }
    json_decref(messages);
    return code;
}

int esp_verb_run(const struct esp_options *options)
{
    int code = check_options(options);
    if (code != ESP_EXIT_DONE) {
        return code;
    }
    struct session session = {.options = options};
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a read ends with it */
    struct esp_err err = {0};
    if (open_session(&session, &err) != ESP_OK) {
        code = fail(&err);
    } else {
        sigaction(SIGINT, &action, NULL);
        bool once = options->prompt != NULL || options->file != NULL || options->positional != NULL;
        code = once ? run_once(&session) : run_chat(&session);
    }
    close_session(&session);
    return code;
}
