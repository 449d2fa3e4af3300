"""C source as tokens and functions: enough of the language for the rules of tidy, by the standard library alone.

A token knows its line and whether it stands in a preprocessor directive. Functions are found by braces at file scope: a
"{" after ")" opens one unless an "=" came before. Macro bodies are no functions. Branches of #if are all read.
"""
import re
from collections import namedtuple

Token = namedtuple("Token", "kind text line directive")
Function = namedtuple("Function", "name line end_line body")
Include = namedtuple("Include", "path is_system line")

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
      | (?P<string>(?:u8|[LuU])?"(?:\\.|[^"\\\n])*")
      | (?P<char>[LuU]?'(?:\\.|[^'\\\n])*')
      | (?P<ident>[A-Za-z_]\w*)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
      | (?P<splice>\\\n)
      | (?P<newline>\n)
      | (?P<space>[^\S\n]+)
      | (?P<punct>\.\.\.|->|\+\+|--|<<=|>>=|&&|\|\||[<>=!+\-*/%&|^]=|<<|>>|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
BRANCHES = {"if", "for", "while", "case", "&&", "||", "?"}


def tokenize(text):
    tokens, line, directive, fresh = [], 1, False, True
    for match in TOKEN.finditer(text):
        kind, part = match.lastgroup, match.group()
        if kind == "newline":
            directive, fresh = False, True
        elif kind not in ("space", "splice", "comment"):
            directive = directive or (fresh and part == "#")
            fresh = False
            tokens.append(Token(kind, part, line, directive))
        line += part.count("\n")
    return tokens


def includes(text):
    found = []
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Include(match.group(2), match.group(1) == "<", line))
    return found


def closing(tokens, at, opens, closes):
    """Index of the token that closes the bracket at `at`, or of the last token."""
    depth = 0
    for idx in range(at, len(tokens)):
        depth += (tokens[idx].text == opens) - (tokens[idx].text == closes)
        if depth == 0:
            return idx
    return len(tokens) - 1


def opening(tokens, at):
    depth = 0
    for idx in range(at, -1, -1):
        depth += (tokens[idx].text == ")") - (tokens[idx].text == "(")
        if depth == 0:
            return idx
    return 0


def function_name(head):
    """The name token of a function whose body follows these tokens, or None when it is something else."""
    depth = 0
    for token in head:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "=" and depth == 0:
            return None
    at = len(head) - 1
    while at > 0 and head[at].text == ")":
        before = opening(head, at) - 1
        if before < 0 or head[before].kind != "ident":
            return None
        if head[before].text != "__attribute__":
            return head[before]
        at = before - 1
    return None


def functions(tokens):
    code = [token for token in tokens if not token.directive]
    head, at = [], 0
    while at < len(code):
        token = code[at]
        if token.text == "{" and not (len(head) == 2 and head[0].text == "extern"):
            end = closing(code, at, "{", "}")
            name = function_name(head)
            if name is not None:
                yield Function(name.text, name.line, code[end].line, code[at + 1:end])
                head = []
            at = end
        elif token.text in ("{", "}", ";"):
            head = []
        else:
            head.append(token)
        at += 1


def complexity(body):
    """Paths through a function after McCabe: one, plus one a branch. Labels that stand together count once."""
    n = 1
    for idx, token in enumerate(body):
        if token.text not in BRANCHES:
            continue
        if token.text == "case":
            end = idx
            while end < len(body) and body[end].text != ":":
                end += 1
            if end + 1 < len(body) and body[end + 1].text in ("case", "default"):
                continue
        n += 1
    return n


def variable_arrays(body):
    """Array declarations in a function whose length is not made of numbers, CONSTANTS and sizeof."""
    for idx in range(2, len(body)):
        is_declarator = body[idx].text == "[" and body[idx - 1].kind == "ident" and (
            body[idx - 2].text == "*" or body[idx - 2].kind == "ident")
        if not is_declarator or not starts_declaration(body, idx - 2):
            continue
        end = closing(body, idx, "[", "]")
        at = idx + 1
        while at < end:
            if body[at].text == "sizeof":
                at = closing(body, at + 1, "(", ")") if body[at + 1].text == "(" else end
            elif body[at].kind == "ident" and body[at].text != body[at].text.upper():
                yield body[idx - 1]
                break
            at += 1


def starts_declaration(body, at):
    """Whether a type stands before a declarator, and before the type the start of a statement."""
    has_type = False
    while at >= 0 and (body[at].kind == "ident" or body[at].text == "*"):
        if body[at].text in ("return", "else", "case", "sizeof"):
            return False
        has_type = has_type or body[at].kind == "ident"
        at -= 1
    return has_type and (at < 0 or body[at].text in (";", "{", "}"))
