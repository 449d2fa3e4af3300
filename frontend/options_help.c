/* The option table in its printed forms: --help of the program and of each verb, and the README's table.
 *
 * Nothing here knows an option; everything comes from the rows. Thread: main.
 */
#include <string.h>

#include "frontend/options_table.h"

#define HELP_COLUMN 28

static void print_wrapped(FILE *out, const char *text)
{
    const int width = 100 - HELP_COLUMN;
    while ((int)strlen(text) > width) {
        int cut = width;
        while (cut > 0 && text[cut] != ' ') {
            cut--;
        }
        cut = cut == 0 ? width : cut;
        fprintf(out, "%.*s\n%*s", cut, text, HELP_COLUMN, "");
        text += cut + (text[cut] == ' ');
    }
    fputs(text, out);
}

static void print_row(FILE *out, const struct esp_option *row)
{
    char left[64], letter[8] = "    ", right[256];
    if (row->letter != 0) {
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    }
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, row->name, row->value != NULL ? " " : "",
             row->value != NULL ? row->value : "");
    bool shown = row->preset != NULL && strcmp(row->preset, "auto") != 0;
    snprintf(right, sizeof right, "%s%s%s%s", row->help, shown ? " [" : "", shown ? row->preset : "", shown ? "]" : "");
    fprintf(out, "%-*s", HELP_COLUMN - 1, left);
    if (strlen(left) > HELP_COLUMN - 1) {
        fprintf(out, "\n%*s", HELP_COLUMN - 1, "");
    }
    fputc(' ', out);
    print_wrapped(out, right);
    fputc('\n', out);
}

void esp_options_help(FILE *out, const char *verb)
{
    for (size_t idx = 0; verb != NULL && idx < esp_verb_n_rows; idx++) {
        if (strcmp(verb, esp_verb_rows[idx].name) != 0) {
            continue;
        }
        fprintf(out, "usage: espalier %s [options]\n%s\n\n", esp_verb_rows[idx].usage, esp_verb_rows[idx].help);
        for (size_t row = 0; row < esp_option_n_rows; row++) {
            if ((esp_option_rows[row].verbs & esp_verb_rows[idx].bit) != 0) {
                print_row(out, &esp_option_rows[row]);
            }
        }
        fputs("\nEach --x-y is also ESPALIER_X_Y in the environment and \"x-y\" in the config file.\n", out);
        return;
    }
    fputs("usage: espalier VERB [options]\n\n", out);
    for (size_t idx = 0; idx < esp_verb_n_rows; idx++) {
        fprintf(out, "  %-42s %s\n", esp_verb_rows[idx].usage, esp_verb_rows[idx].help);
    }
    fputs("\nespalier VERB --help lists the options of a verb; --version prints the version.\n", out);
}

void esp_options_markdown(FILE *out)
{
    fputs("| option | verbs | default | meaning |\n| --- | --- | --- | --- |\n", out);
    for (size_t row_idx = 0; row_idx < esp_option_n_rows; row_idx++) {
        const struct esp_option *row = &esp_option_rows[row_idx];
        fputs("| `", out);
        if (row->letter != 0) {
            fprintf(out, "-%c, ", row->letter);
        }
        fprintf(out, "--%s%s%s` | ", row->name, row->value != NULL ? " " : "", row->value != NULL ? row->value : "");
        if (row->verbs == ESP_VERB_ALL) {
            fputs("all", out);
        }
        bool first = true;
        for (size_t idx = 0; row->verbs != ESP_VERB_ALL && idx < esp_verb_n_rows; idx++) {
            if ((row->verbs & esp_verb_rows[idx].bit) != 0) {
                fprintf(out, "%s%s", first ? "" : ", ", esp_verb_rows[idx].name);
                first = false;
            }
        }
        fprintf(out, " | %s | %s |\n", row->preset != NULL ? row->preset : "", row->help);
    }
}
