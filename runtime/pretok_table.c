/* The table of pre-tokenizers: names of tokenizer.ggml.pre, patterns, flags.
 *
 * Patterns are those of the models' own tokenizer.json files, written so that PCRE2 takes them and none costs
 * more than linear time: white space is spelt out (PCRE2's \s also matches U+180E, Unicode's White_Space
 * does not), digits that are grouped from the right are first isolated and then cut in one walk, and set
 * differences are written as complements. A name that is not here is refused by the loader: a wrong
 * split changes ids silently. Thread: constants.
 */
#include <string.h>

#include "runtime/pretok.h"

/* White_Space inside a class; SP is one such character, NS one other. */
#define WS "\\t-\\r\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SP "[" WS "]"
#define NS "[^" WS "]"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SPACES SP "+(?!" NS ")|" SP "+"
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"
#define TAIL SYMBOLS "|" SP "*[\\r\\n]+|" SPACES
#define TAIL_SLASH " ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" SP "*[\\r\\n]+|" SPACES
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES

/* Words of gpt-4o: capitals then small letters, either part possibly empty. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, after)                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" after "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" after
#define GPT4O CASED(UPPER, LOWER, CONTRACTION "?") "|\\p{N}{1,3}|" TAIL_SLASH
#define NO_HAN "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define UPPER_NO_HAN "[^\\p{Ll}" NO_HAN
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}" NO_HAN

/* Digits in threes from the right: runs that end at a word's end become pieces, then each is walked once. */
#define DIGIT_RUNS "(?<!\\d)\\d++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])"
#define DIGIT_THREES "\\A(?=\\d++\\z)\\d{1,3}(?=(?:\\d{3})*+\\z)|(?<=\\d)\\G\\d{3}"

#define HAN_DEEPSEEK "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define ASCII_PUNCT "!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~"
/* deepseek-llm: letters of the scripts that have case, as code points because some look like others. */
#define CASED_LETTERS                                                                                                  \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"   \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"     \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"       \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"                  \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                  \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"          \
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"         \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"          \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"                    \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"          \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"                   \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"                  \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"          \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_PUNCT "!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}"
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

static const struct esp_pretok_row rows[] = {
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {CONTRACTION "|" WORD "|\\p{N}{1,3}|" TAIL}, .ignore_merges = true, .add_bos = true},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {CONTRACTION "|" WORD "|\\p{N}{1,3}|" TAIL}},
    {"qwen2", {CONTRACTION "|" WORD "|\\p{N}|" TAIL}, .nfc = true},
    {"deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     {CONTRACTION "|" WORD "|\\p{N}|" TAIL}},
    {"qwen35",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SP
                  "*[\\r\\n]+|" SPACES},
     .nfc = true},
    {"gpt-4o", {GPT4O}, .ignore_merges = true},
    {"llama4 kanana2 talkie minimax-m2", {GPT4O}},
    {"granite-embed-multi-97m", {GPT4O}, .ignore_merges = true},
    {"tekken", {CASED(UPPER, LOWER, "") "|\\p{N}|" TAIL_SLASH}, .ignore_merges = true, .add_bos = true},
    {"tiny_aya cohere2moe", {DIGIT_RUNS, DIGIT_THREES, GPT4O}},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum modern-bert "
     "mpt olmo jais trillion granite-docling exaone4 roberta-bpe",
     {GPT2}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-llm",
     {"[\\r\\n]", SP "?[" CASED_LETTERS "]+", SP "?[" DEEPSEEK_PUNCT "]+", "(?<!" SP ")" SP "++\\z", HAN_DEEPSEEK,
      "\\p{N}+"}},
    {"deepseek-coder", {"[\\r\\n]", SP "?\\p{L}+", SP "?\\p{P}+", HAN_DEEPSEEK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[" ASCII_PUNCT "][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SP
      "*[\\r\\n]+|" SPACES}},
    {"bloom gpt3-finnish poro-chat", {BLOOM}},
    {"viking", {BLOOM, "\\p{N}"}},
    {"seed-coder",
     {CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" SP "*[\\r\\n]+|" SPACES}},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|" WORD "|\\p{N}|" SYMBOLS "|" SP "*[\\r\\n]|" SPACES}},
    {"exaone-moe",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^" WS
                  "\\p{L}\\p{N}]+[\\r\\n/]?|" SP "*[\\r\\n]|" SPACES}},
    {"jais-2",
     {CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" SP "*[\\r\\n]+|" SP "{512}(?!" NS ")|" SP "{256}(?!" NS ")|" SP
                  "{128}(?!" NS ")|" SP "{64}(?!" NS ")|" SP "{32}(?!" NS ")|" SP "{16}(?!" NS ")|" SP "{8}(?!" NS
                  ")|" SP "{4}(?!" NS ")|" SP "{1,2}(?!" NS ")|" SP}},
    {"chameleon",
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"kimi-k2",
     {"\\p{Han}+|" CASED(UPPER_NO_HAN, LOWER_NO_HAN, CONTRACTION "?") "|\\p{N}{1,3}|" TAIL}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

const struct esp_pretok_row *esp_pretok_row_at(size_t idx)
{
    return idx < sizeof rows / sizeof rows[0] ? &rows[idx] : NULL;
}

static bool has_name(const char *names, const char *name, size_t n_bytes)
{
    for (const char *at = names; *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (n == n_bytes && memcmp(at, name, n) == 0) {
            return true;
        }
        at += n + (at[n] == ' ');
    }
    return false;
}

const struct esp_pretok_row *esp_pretok_find(const char *name, size_t n_bytes)
{
    for (size_t idx = 0; idx < sizeof rows / sizeof rows[0]; idx++) {
        if (n_bytes > 0 && has_name(rows[idx].names, name, n_bytes)) {
            return &rows[idx];
        }
    }
    return NULL;
}
