#!/usr/bin/env python3
"""Record token ids with llama.cpp: writes tokens_llama_cpp.jsonl, one {"model","special","text","ids"} a line.

Usage: python3 make_tokens.py [--splits] OUT MODEL.gguf...        needs the Python package llama-cpp-python

The file in this folder was made on 2026-12-01 with llama-cpp-python 0.3.36 from SmolLM2-135M-Instruct.Q4_1.gguf and
gemma-3-270m-Q4_K_M.gguf. The texts are this project's own. No BOS or EOS is added. Left out: "</s>" in gemma3's
vocabulary, a user-defined token (HTML) in the file and for its own tokenizer, a control token for llama.cpp.
tokens_splits.jsonl was made the same way with --splits, from these two and the vocabularies of shared/data/vocab.
Left out there: the text with combining marks for gpt-oss, whose rule keeps marks with their word and llama.cpp's
does not, and for Qwen3, whose tokenizer composes it first (NFC) and llama.cpp does not.
"""
import json
import sys

from llama_cpp import Llama

TEXTS = [
    '',
    'a',
    'Hello, world!',
    ' Hello',
    '  two spaces',
    'a  b   c    d',
    '\n',
    '\n\n',
    'a\n\n\nb',
    '\t\ttabs\tand\t',
    "It's we'll I'M DON'T you're",
    '12345678 3.14e10 1,000,000',
    'Stra\xdfe na\xefve caf\xe9 \xdc \xfc',
    'e\u0301 n\u0303 combining',
    '\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e',
    '\u4f60\u597d\uff0c\u4e16\u754c\u3002',
    '\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca',
    '\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4',
    '\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!',
    '\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645',
    '\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd',
    '\U0001f937\U0001f3fd\u200d\u2640\ufe0f \U0001f680\U0001f680 \U0001f468\u200d\U0001f469\u200d'
    '\U0001f467',
    'def f(x):\n    return x ** 2  # comment\n',
    '{"category": "billing", "priority": 2}',
    '<table><tr><td>x</td></tr></table>',
    '<|im_start|>user\nHi<|im_end|>\n',
    '<start_of_turn>user\nHi<end_of_turn>\n<eos>',
    '<bos><unk><pad>',
    '\u2581low\u2581line \u2581',
    '\xa0nbsp\u2003em\u3000ideo',
    'a\r\nb\r\n\r\nc',
    'x\u200by\u200dz\ufeff',
    'http://example.com/a?b=c&d=%20#e',
    'ALLCAPS lowercase MixedCase camelCase snake_case',
    '...!!!???---___===',
    '   ',
    ' \n \n ',
    'trailing   ',
    '\x00nul\x01',
    '\U0001d49c\U0001d4c1\U0001d4c5\U0001d4bd\U0001d4b6 \U00010348',
    "\u017f '\u017f K\u212a",
    '\u180emongolian\u180esep',
    'The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quic'
    'k brown fox jumps over the lazy dog. ',
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
    '1234567890123456789012345678901234567890',
    '\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d'
    '\u4e2d\u4e2d\u4e2d\u4e2d',
    '<0x41> <0xFF>',
    "it''s ''s 'S 'll'",
]

# The texts of B190: what a wrong rule of splitting gets wrong.
SPLITS = [
    '12345678',
    "it's IT'S",
    'a\u0301 \u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d\r\n\r\n  x',
    'foo   bar\t\tbaz',
    '3.14e10',
    '\U0001f937\U0001f3fd\u200d\u2640\ufe0f',
]


def main(out, models, texts=TEXTS, specials=(False, True)):
    with open(out, "w", encoding="utf-8") as f:
        for path in models:
            llm = Llama(path, vocab_only=True, verbose=False)
            for special in specials:
                for text in texts:
                    ids = llm.tokenize(text.encode(), add_bos=False, special=special)
                    row = {"model": path.split("/")[-1], "special": special, "text": text, "ids": ids}
                    f.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--splits":
        main(sys.argv[2], sys.argv[3:], SPLITS, (False, ))
    else:
        main(sys.argv[1], sys.argv[2:])
