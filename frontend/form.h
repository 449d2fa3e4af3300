/* How a model's template writes reasoning and tool calls: one form for all, found by probing or written by hand.
 *
 *   open ( call ( sep call )* ) close         a call is a row of pieces, of which one is the arguments:
 *
 *   <tool_call>\n{"name": "   NAME   ", "arguments": {"city": "Rome"}   }\n</tool_call>       JSON
 *   <function=   NAME   >\n   <parameter=city>\nRome\n</parameter>\n   </function>            tagged
 *
 * Literals are bytes in which a control token is coded as 0xFF and four bytes 0x80…0xBF, which no text contains:
 * what the model spells in letters is never taken for the token. Without control tokens a literal is plain text.
 * Read-only after it was made; the strings belong to its arena.
 */
#ifndef ESP_FRONTEND_FORM_H
#define ESP_FRONTEND_FORM_H

#include "frontend/template.h"
#include "runtime/base/arena.h"

#define ESP_CODE_BYTES 5u
#define ESP_PIECES_MAX 12u
#define ESP_SKIPS_MAX 6u
#define ESP_FORM_BYTES_MAX (1024u * 1024u)

struct esp_lit {
    const char *text;
    uint32_t n;
};

enum esp_slot { ESP_SLOT_LIT, ESP_SLOT_NAME, ESP_SLOT_ID, ESP_SLOT_INDEX, ESP_SLOT_ARGS };
struct esp_piece {
    enum esp_slot slot;
    struct esp_lit lit;
};
enum esp_id_style { ESP_ID_PLAIN, ESP_ID_NINE, ESP_ID_COUNTED }; /* call_…, nine letters, functions.NAME:INDEX */
enum { ESP_VALUE_STRING, ESP_VALUE_OTHER };

/* Arguments that are no JSON object: open (arg (sep arg)*) close, an arg being begin KEY mid VALUE end. */
struct esp_tagged {
    struct esp_lit open, begin, mid[2], end[2], sep, close; /* mid and end for strings and for others */
    struct esp_lit none;                                    /* everything between name and tail without arguments */
    bool quoted;                                            /* strings are JSON strings; else raw text up to end */
    bool python;                                            /* True, False, None */
};

struct esp_form {
    struct esp_arena arena;
    bool knows_tools;   /* the template prints tools and calls; else they are written into the messages */
    bool string_args;   /* it wants the arguments of past calls as a string */
    bool takes_text;   /* it prints arguments that are no object but a text */
    bool takes_system; /* messages of the role system; else they go in front of the user's first */
    bool one_call;      /* it prints one call a turn only */
    bool shows_calls;   /* of past turns; else they are written into the content */
    bool shows_results; /* messages of the role tool; else they are written as the user's */
    bool names_open;    /* pythonic: a call is recognised by open and a tool's name */
    bool bare_start;    /* the answer begins with a tool's name or with `all` */
    enum esp_id_style ids;
    struct esp_lit open, lead, sep, close; /* lead: white space before open when text precedes it */
    struct esp_lit all;
    struct esp_piece pieces[ESP_PIECES_MAX];
    uint32_t n_pieces;
    bool is_tagged;
    const char *whitespace; /* of JSON arguments: compact, line, pretty */
    struct esp_tagged tagged;
    struct esp_lit trigger;                 /* what begins the first call; empty with names_open and bare_start */
    struct esp_lit think_open, think_close; /* empty: the model does not reason */
    struct esp_lit text_open; /* what the model writes before a text; it is one of the skips too */
    const char *think_text;                 /* think_open as the template prints it; NULL: it does not */
    /* Behind a string that is the last argument of the last call: up to the call's id, or to the end; and the rest
     * behind that id, NULL where it is not printed there. */
    const char *behind, *behind_id;
    const char *header; /* what an assistant's turn begins with, in the prompt and in history; NULL: nothing */
    bool drift_known;
    size_t drift_bytes; /* how many bytes of a prompt the next one does not begin with; 0: prefix-stable */
    const char *drift;  /* the first of them */
    struct esp_lit skips[ESP_SKIPS_MAX];    /* headers inside an answer, which are no text */
    uint32_t n_skips;
};

/* Appends the code of a control token. */
void esp_code_add(struct esp_buf *buf, uint32_t token);
/* The token of the code at text[0], which is 0xFF and has ESP_CODE_BYTES. */
uint32_t esp_code_token(const char *text);
/* Appends text with its control tokens coded. */
esp_status esp_code_text(const esp_vocab *vocab, const char *text, size_t n_bytes, struct esp_buf *buf);
/* Does the form name this control token in one of its literals? */
bool esp_form_takes(const struct esp_form *form, uint32_t token);

/* What it is, in one line for people. */
void esp_form_show(const struct esp_form *form, struct esp_buf *buf);
/* The form for templates that know no tools: <tool_call>\n{"name": …, "arguments": …}\n</tool_call>. */
void esp_form_generic(struct esp_form *form);

#endif
