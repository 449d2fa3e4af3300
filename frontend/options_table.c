/* The option table itself: every option of every verb, once.
 *
 * To add one: a field in struct esp_options, a row here, a line in the table of README.md (a test compares).
 * Order is the order of the help. Two rows may share a name when no verb takes both. Read-only data; the
 * parser is options.c.
 */
#include "frontend/options_table.h"

#define AT(field) offsetof(struct esp_options, field)
#define ENGINE (ESP_VERB_SERVE | ESP_VERB_RUN | ESP_VERB_BENCH | ESP_VERB_LOGITS | ESP_VERB_PERPLEXITY)
#define CHAT (ESP_VERB_SERVE | ESP_VERB_RUN)

const struct esp_option esp_option_rows[] = {
    /* model and engine */
    {"model", 'm', ESP_OPTION_TEXT, ENGINE | ESP_VERB_GRAMMAR | ESP_VERB_TOKENIZE, AT(model), .value = "FILE",
     .help = "the model, a GGUF file"},
    {"vocab", 0, ESP_OPTION_TEXT, ESP_VERB_GRAMMAR | ESP_VERB_TOKENIZE, AT(vocab), .value = "FILE",
     .help = "a GGUF file of which only the vocabulary is read"},
    {"device", 0, ESP_OPTION_NAME, ENGINE, AT(device), "auto", .names = "auto|cpu", .later = "cuda", .value = "NAME",
     .help = "what computes: auto or cpu"},
    {"cpu-level", 0, ESP_OPTION_NAME, ENGINE, AT(cpu_level), "auto", .names = "auto|scalar|avx2|avx512",
     .value = "NAME", .help = "highest instruction set to use: auto, scalar, avx2 or avx512"},
    {"ctx", 0, ESP_OPTION_U32, ENGINE, AT(ctx), "auto", 16, 16777216, .value = "N",
     .help = "tokens a request may have, prompt and answer together; auto = the model's own, at most 8192"},
    {"kv-bytes", 0, ESP_OPTION_SIZE, ENGINE, AT(kv_bytes), "auto", 65536, 0x1p46, .value = "SIZE",
     .help = "memory for the KV cache; auto = four full contexts, at most a quarter of the free memory"},
    {"kv-type", 0, ESP_OPTION_NAME, ENGINE, AT(kv_type), "f16", .names = "f16", .later = "q8_0", .value = "NAME",
     .help = "number format of the KV cache; f16: 16 bits a value"},
    {"threads", 0, ESP_OPTION_U32, ENGINE, AT(threads), "auto", 1, 1024, .value = "N",
     .help = "compute threads; auto = the CPUs of this process"},
    {"max-batch", 0, ESP_OPTION_U32, ENGINE, AT(max_batch), "auto", 1, 1024, .value = "N",
     .help = "sequences that run at once; auto = 64"},
    {"prefill-chunk", 0, ESP_OPTION_U32, ENGINE, AT(prefill_chunk), "auto", 1, 65536, .value = "N",
     .help = "prompt tokens computed in one step; auto = 512"},
    {"cache-off", 0, ESP_OPTION_FLAG, ENGINE, AT(cache_off),
     .help = "compute every prompt from its beginning (for comparisons)"},
    /* server */
    {"host", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(host), "127.0.0.1", .value = "ADDRESS",
     .help = "address to listen on, or the path of a Unix socket"},
    {"port", 0, ESP_OPTION_U32, ESP_VERB_SERVE, AT(port), "8080", 0, 65535, .value = "N",
     .help = "port to listen on; 0 = any free one"},
    {"alias", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(alias), .value = "NAME",
     .help = "the model's name in answers; default: the name of its file"},
    {"api-key-file", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(api_key_file), .value = "FILE",
     .help = "accepted API keys, one a line, read again on SIGHUP; default: none needed"},
    {"tls-cert", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(tls_cert), .value = "FILE",
     .help = "certificate chain (PEM): listen with TLS"},
    {"tls-key", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(tls_key), .value = "FILE",
     .help = "private key of the certificate (PEM)"},
    {"cors-origin", 0, ESP_OPTION_TEXT, ESP_VERB_SERVE, AT(cors_origin), .value = "ORIGIN",
     .help = "origin that web pages may call from, or *"},
    {"max-queue", 0, ESP_OPTION_U32, ESP_VERB_SERVE, AT(max_queue), "auto", 1, 1048576, .value = "N",
     .help = "requests that may wait before a 429; auto = 1024"},
    {"max-body", 0, ESP_OPTION_SIZE, ESP_VERB_SERVE, AT(max_body_bytes), "16M", 1024, 1073741824, .value = "SIZE",
     .help = "largest request body"},
    {"strict-fields", 0, ESP_OPTION_FLAG, ESP_VERB_SERVE, AT(strict_fields),
     .help = "refuse unknown request fields instead of warning"},
    {"strict-model", 0, ESP_OPTION_FLAG, ESP_VERB_SERVE, AT(strict_model),
     .help = "answer 404 to an unknown model name instead of serving it"},
    {"chat-template", 0, ESP_OPTION_TEXT, CHAT, AT(chat_template), .value = "FILE",
     .help = "a chat template (Jinja) in place of the model's own"},
    /* prompts and sampling */
    {"prompt", 'p', ESP_OPTION_TEXT, ESP_VERB_RUN, AT(prompt), .value = "TEXT",
     .help = "the prompt; without one: a chat on a terminal"},
    {"file", 'f', ESP_OPTION_TEXT, ESP_VERB_RUN | ESP_VERB_PERPLEXITY, AT(file), .value = "FILE",
     .help = "read the prompt or text from a file; - = standard input"},
    {"raw", 0, ESP_OPTION_FLAG, ESP_VERB_RUN, AT(raw), .help = "continue the text as it is, without the chat template"},
    {"schema", 0, ESP_OPTION_TEXT, ESP_VERB_RUN, AT(schema), .value = "FILE",
     .help = "answer with JSON of this JSON schema"},
    {"regex", 0, ESP_OPTION_TEXT, ESP_VERB_RUN, AT(regex), .value = "PATTERN",
     .help = "answer with a full match of this pattern"},
    {"grammar", 0, ESP_OPTION_TEXT, ESP_VERB_RUN, AT(grammar), .value = "FILE",
     .help = "answer with this grammar (GBNF)"},
    {"choice", 0, ESP_OPTION_TEXT, ESP_VERB_RUN, AT(choice), .value = "A,B,C",
     .help = "answer with one of these texts"},
    {"max-tokens", 0, ESP_OPTION_U32, ESP_VERB_RUN, AT(max_tokens), "auto", 1, 16777216, .value = "N",
     .help = "longest answer; auto = what fits the context"},
    {"temperature", 0, ESP_OPTION_REAL, ESP_VERB_RUN, AT(temperature), "0.7", 0, 2, .value = "X",
     .help = "0 = always the likeliest token"},
    {"top-k", 0, ESP_OPTION_U32, ESP_VERB_RUN, AT(top_k), "0", 0, 1000000, .value = "N",
     .help = "draw from the N likeliest tokens; 0 = all"},
    {"top-p", 0, ESP_OPTION_REAL, ESP_VERB_RUN, AT(top_p), "1", 0, 1, .value = "X",
     .help = "draw from the likeliest tokens that hold this share of the probability"},
    {"min-p", 0, ESP_OPTION_REAL, ESP_VERB_RUN, AT(min_p), "0", 0, 1, .value = "X",
     .help = "drop tokens below this share of the likeliest one's probability"},
    {"seed", 0, ESP_OPTION_U64, ESP_VERB_RUN | ESP_VERB_BENCH, AT(seed), "0", 0, 9007199254740992.0, .value = "N",
     .help = "equal seeds draw equal answers"},
    /* measuring and looking */
    {"prompt", 0, ESP_OPTION_U32, ESP_VERB_BENCH, AT(bench_prompt), "512", 1, 16777216, .value = "N",
     .help = "prompt tokens of each sequence"},
    {"generate", 0, ESP_OPTION_U32, ESP_VERB_BENCH, AT(bench_generate), "64", 1, 16777216, .value = "N",
     .help = "tokens to generate in each sequence"},
    {"batch", 0, ESP_OPTION_U32, ESP_VERB_BENCH, AT(bench_batch), "1", 1, 1024, .value = "N",
     .help = "sequences at once"},
    {"shared", 0, ESP_OPTION_U32, ESP_VERB_BENCH, AT(bench_shared), "0", 0, 16777216, .value = "N",
     .help = "also measure all sequences on one shared prefix of N tokens"},
    {"repeat", 0, ESP_OPTION_U32, ESP_VERB_BENCH, AT(repeat), "3", 1, 1000, .value = "N",
     .help = "runs of each measurement; the median is reported"},
    {"template", 0, ESP_OPTION_TEXT, ESP_VERB_RENDER, AT(template_file), .value = "FILE",
     .help = "the chat template (Jinja) to render"},
    {"tokens", 0, ESP_OPTION_TEXT, ESP_VERB_LOGITS, AT(tokens), .value = "IDS",
     .help = "token ids, separated by commas, or @FILE"},
    {"top", 0, ESP_OPTION_U32, ESP_VERB_LOGITS, AT(top), "10", 1, 16777216, .value = "N",
     .help = "ids and logits to print for each position, best first"},
    {"out", 'o', ESP_OPTION_TEXT, ESP_VERB_LOGITS, AT(out), .value = "FILE",
     .help = "write all logits as raw little-endian f32"},
    {"json", 0, ESP_OPTION_FLAG, ESP_VERB_BENCH | ESP_VERB_INSPECT, AT(json), .help = "print JSON"},
    {"full", 0, ESP_OPTION_FLAG, ESP_VERB_INSPECT, AT(full), .help = "print long arrays whole"},
    {"oracle", 0, ESP_OPTION_FLAG, ESP_VERB_GRAMMAR, AT(oracle),
     .help = "compare every mask with a brute-force one"},
    /* the program */
    {"log-level", 0, ESP_OPTION_NAME, ESP_VERB_ALL, AT(log_level), "info", .names = "error|warn|info|debug",
     .value = "NAME", .help = "lines on standard error: error, warn, info or debug"},
    {"log-json", 0, ESP_OPTION_FLAG, ESP_VERB_ALL, AT(log_json), .help = "log lines as JSON objects"},
    {"config", 0, ESP_OPTION_TEXT, ESP_VERB_ALL, AT(config), .value = "FILE",
     .help = "a JSON object of options by name"},
};
const size_t esp_option_n_rows = sizeof esp_option_rows / sizeof esp_option_rows[0];

const struct esp_verb_row esp_verb_rows[] = {
    {"serve", ESP_VERB_SERVE, "serve -m MODEL", "the HTTP server"},
    {"run", ESP_VERB_RUN, "run -m MODEL [-p TEXT | -f FILE | -]", "one prompt, or a chat on a terminal"},
    {"bench", ESP_VERB_BENCH, "bench -m MODEL", "prefill and decode speed, time to first token, memory"},
    {"grammar", ESP_VERB_GRAMMAR, "grammar check (-m MODEL | --vocab GGUF)",
     "grammars and texts as JSON lines in, what is allowed out"},
    {"tokenize", ESP_VERB_TOKENIZE, "tokenize (-m MODEL | --vocab GGUF)", "texts as JSON lines in, token ids out"},
    {"render", ESP_VERB_RENDER, "render --template FILE", "chats as JSON lines in, prompts out"},
    {"inspect", ESP_VERB_INSPECT, "inspect GGUF", "metadata and tensors of a model file"},
    {"logits", ESP_VERB_LOGITS, "logits -m MODEL --tokens 1,2,3", "the model's output at every position"},
    {"perplexity", ESP_VERB_PERPLEXITY, "perplexity -m MODEL -f TEXT", "mean negative log-likelihood of a text"},
};
const size_t esp_verb_n_rows = sizeof esp_verb_rows / sizeof esp_verb_rows[0];

const char *const esp_option_later_names[] = {"cache-dir", "cache-bytes", "lenient-schema",
                                              "trace",    "synthetic", "url",       "format",      "input",
                                              NULL};
const char *const esp_verb_later_names[] = {"batch", "tree", "pull", "doctor", NULL};
