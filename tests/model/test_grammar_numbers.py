"""Numbers with bounds and multiples against exact fractions.

usage: test_grammar_numbers.py ESPALIER [--seed N] [--rounds N]

For random schemas of bounds, types and multipleOf (tiny, huge, several together) texts are drawn near the bounds and
near multiples, spelled plain, with zeros and with a normalised exponent. A text must be taken exactly when its value
satisfies the schema. Random walks over the allowed bytes must never stand still before the value is complete, and end
in a valid value.
"""
import os
import random
import sys
from fractions import Fraction

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, Number, Tap, dumps, find_model, first_seed, option  # noqa: E402

STEPS = ["1", "2", "3", "5", "7", "10", "12", "25", "60", "100", "0.5", "0.25", "0.1", "0.01", "1.5", "2.75", "0.0001",
         "1e-8", "1e3", "123456789", "0.3333", "64", "1e20", "97e-4", "18446744073709551615", "0.0750", "1e2", "4096"]
BOUNDS = ["0", "1", "-1", "2.5", "-2.5", "7", "99.99", "100", "1000", "-1000", "1e6", "0.001", "18446744073709551615",
          "123456789012345678901234567890", "-0.75", "1e-5", "12.3456", "50", "49.999", "1e30"]
ENDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def schema(r):
    out = {}
    if r.random() < 0.6:
        out["type"] = r.choice(["integer", "number", "number"])
    if r.random() < 0.85:
        out["multipleOf"] = Number(r.choice(STEPS))
    if r.random() < 0.25:
        out["allOf"] = [{"multipleOf": Number(r.choice(STEPS))}]
    if r.random() < 0.2:
        out["not"] = {"multipleOf": Number(r.choice(STEPS))}
    for name in ENDS:
        if r.random() < 0.3:
            out[name] = Number(r.choice(BOUNDS))
    return out


def valid(s, value):
    if s.get("type") == "integer" and value.denominator != 1:
        return False
    if "multipleOf" in s and (value / Fraction(s["multipleOf"])).denominator != 1:
        return False
    if "minimum" in s and value < Fraction(s["minimum"]) or "maximum" in s and value > Fraction(s["maximum"]):
        return False
    if "exclusiveMinimum" in s and value <= Fraction(s["exclusiveMinimum"]):
        return False
    if "exclusiveMaximum" in s and value >= Fraction(s["exclusiveMaximum"]):
        return False
    if "not" in s and valid(s["not"], value):
        return False
    return all(valid(part, value) for part in s.get("allOf", []))


def plain(value):
    """The decimal digits of a fraction that has finitely many."""
    places = 0
    while (value * 10 ** places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10 ** places))).rjust(places + 1, "0")
    text = digits[:len(digits) - places] + ("." + digits[-places:] if places else "")
    return ("-" if value < 0 else "") + text


def exponent(r, value):
    """One digit, a fraction, an exponent."""
    sign, digits = ("-" if value < 0 else ""), plain(abs(value)).replace(".", "")
    power = len(plain(abs(value)).split(".")[0]) - 1
    for _ in range(len(digits) - len(digits.lstrip("0")) if value else 0):
        power -= 1
    digits = digits.strip("0")
    if not digits:
        return sign + "0e" + str(r.randrange(5))
    if len(digits) > 17:  # longer mantissas may be refused: they tempt a model into endless digits
        return plain(value)
    mark = "e" if power < 0 else r.choice(["e", "e+", "E", "e0"])
    return sign + digits[0] + ("." + digits[1:] if digits[1:] else "") + mark + str(power)


def draw(r, s):
    """A value that may or may not satisfy the schema."""
    anchors = [Fraction(s[name]) for name in ENDS if name in s]
    base = r.choice(anchors + [Fraction(n) for n in (0, r.randrange(-50, 5000), r.randrange(10 ** 12))])
    step = Fraction(s.get("multipleOf", "0.5"))
    for part in s.get("allOf", []):
        if r.random() < 0.7:
            step = step * Fraction(part["multipleOf"])
    value = base // step * step + step * r.randrange(-3, 4)
    return value + r.choice([0, 0, 0, 0, Fraction(1), Fraction(1, 10), Fraction(-1, 1000), step / 2])


def spell(r, value):
    text = plain(value)
    kind = r.random()
    if kind < 0.15:
        return text + ("0" if "." in text else ".0") * 1 + "0" * r.randrange(3)
    if kind < 0.4:
        return exponent(r, value)
    return "-" + text if value == 0 and kind < 0.6 else text


def allowed_bytes(driver, s, text):
    vocab = {"tokens": ["%02x" % b for b in range(256)] + [""], "control": [Number(256)], "end": [Number(256)]}
    answer = driver.ask({"id": 1, "schema": s, "vocab": vocab, "feed": [[Number(b) for b in text.encode()]]})
    if answer.get("compile") != "ok":
        return None, False
    return answer["feed"][0]["allowed"], answer["feed"][0]["end"]


def walk(driver, r, s):
    """A text of allowed bytes; what went wrong as the second value."""
    text = ""
    for step in range(60):
        allowed, complete = allowed_bytes(driver, s, text)
        if allowed is None:
            return None, None
        allowed = [b for b in allowed if b < 256]
        if complete and (r.random() < 0.3 or step > 20 or not allowed):
            return text, None
        if not allowed:
            return text, "stands still"
        zeros = [b for b in allowed if b in b"0"]
        text += chr(r.choice(zeros if step > 25 and zeros else allowed))
    return text, None


def main():
    tap = Tap()
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 250)
    tap.note("seed %d" % seed)
    r, driver, counts, problems = random.Random(seed), Driver(sys.argv[1]), {}, []
    for _ in range(rounds):
        s = {"minimum": Number(-10 ** 40), **schema(r)}  # without any bound an integer takes no 1.25e2
        texts = [spell(r, draw(r, s)) for _ in range(30)]
        want = [valid(s, Fraction(text)) for text in texts]
        if "type" not in s:
            s["type"] = "number"
        answer = driver.ask({"id": 1, "schema": s, "accept": texts})
        if answer.get("compile") != "ok":
            code = answer["error"]["code"]
            counts[code] = counts.get(code, 0) + 1
            if any(want) or code != "UNSAT":
                problems.append("%s: %s" % (answer["error"], dumps(s)))
            continue
        for text, good, got in zip(texts, want, answer["accept"]):
            counts[good] = counts.get(good, 0) + 1
            if good != got:
                problems.append("%s should be %s: %s" % (text, "valid" if good else "invalid", dumps(s)))
    tap.note("verdicts %s" % counts)
    for _ in range(rounds // 20):
        s = {"type": "number", **schema(r)}
        text, wrong = walk(driver, r, s)
        small = text is not None and len(text.lower().partition("e")[2]) < 5  # a larger power would never be computed
        if wrong or (small and len(text) < 60 and not valid(s, Fraction(text))):
            problems.append("walk: %s %s: %s" % (text, wrong or "is not valid", dumps(s)))
    for problem in problems[:20]:
        tap.note(problem)
    tap.check(not problems, "%d differences from exact fractions" % len(problems))
    tap.check(counts.get(True, 0) > rounds and counts.get(False, 0) > rounds, "both verdicts are common")
    tap.check(driver.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
