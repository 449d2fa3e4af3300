"""Random schemas and instances against the Python package jsonschema, an independent implementation.

usage: test_grammar_model.py ESPALIER [--seed N] [--rounds N]

Instances are drawn from the schema (mostly valid) and mutated. A compiled schema must accept an instance, in some order
of its keys, exactly when jsonschema finds it valid; a schema may only be refused as UNSAT when no drawn instance is
valid. Numbers are exact in both. Skips without jsonschema or the default model.
"""
import decimal
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, Number, Tap, dumps, find_model, first_seed, option, orders  # noqa: E402

STRINGS = ["", "a", "ab", "abc", "é", "a\"b", "x\ny", "zz9", "2024", "long text here", "/", "\\", "\u0001"]
NUMBERS = ["0", "-0", "1", "2", "3", "10", "-1", "-7", "0.5", "1.0", "1.5", "2.50", "1e1", "2.5e-1", "99", "100",
           "1e300", "123456789012345678901234567890", "-0.001", "0.1"]
PATTERNS = ["^a", "b$", "^[a-z]{1,3}$", "a|z", "[0-9]+", "^$", ".", "\\d{2}", "^(a|ab)*$", "[^a]"]
UNBUILT = ["may be equal", "where it is denied", "only for items that are values"]
KEYS = ["a", "b", "c", "dd", "a\"", "é"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def scalar(self):
        r = self.rng
        return r.choice([None, True, False, r.choice(STRINGS), Number(r.choice(NUMBERS)), r.choice(STRINGS)])

    def value(self, depth=0):
        r = self.rng
        kind = r.random()
        if depth > 2 or kind < 0.6:
            return self.scalar()
        if kind < 0.8:
            return [self.value(depth + 1) for _ in range(r.randrange(4))]
        return {k: self.value(depth + 1) for k in r.sample(KEYS, r.randrange(4))}

    def bounds(self, schema):
        r = self.rng
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if r.random() < 0.3:
                schema[name] = Number(r.choice(NUMBERS[:16]))

    def string(self, schema):
        r = self.rng
        if r.random() < 0.4:
            schema["minLength"] = Number(r.randrange(3))
        if r.random() < 0.4:
            schema["maxLength"] = Number(r.randrange(5))
        if r.random() < 0.4:
            schema["pattern"] = r.choice(PATTERNS)

    def array(self, schema, depth):
        r = self.rng
        if r.random() < 0.7:
            schema["items"] = self.schema(depth + 1)
        if r.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(r.randrange(1, 3))]
        if r.random() < 0.3:
            schema["minItems"] = Number(r.randrange(3))
        if r.random() < 0.3:
            schema["maxItems"] = Number(r.randrange(4))
        if r.random() < 0.2:
            schema["unevaluatedItems"] = r.choice([False, self.schema(depth + 1)])
        if r.random() < 0.2:
            schema["uniqueItems"] = True
            values = [self.scalar() for _ in range(r.randrange(1, 6))] + [[], Number("1"), Number("1.0"), {"a": True}]
            schema["items"] = {"enum": r.sample(values, r.randrange(1, 5))}
            if r.random() < 0.5:
                schema["items"]["type"] = r.sample(["string", "null", "integer", "object"], 3)
        if r.random() < 0.3:
            schema["contains"] = self.schema(depth + 1)
            if r.random() < 0.4:
                schema["minContains"] = Number(r.randrange(3))
            if r.random() < 0.4:
                schema["maxContains"] = Number(r.randrange(3))

    def object(self, schema, depth):
        r = self.rng
        if r.random() < 0.8:
            schema["properties"] = {k: self.schema(depth + 1) for k in r.sample(KEYS, r.randrange(1, 4))}
        if r.random() < 0.5:
            schema["required"] = r.sample(KEYS, r.randrange(3))
        if r.random() < 0.6:
            schema["additionalProperties"] = r.choice([False, True, self.schema(depth + 1)])
        if r.random() < 0.25:
            schema["patternProperties"] = {p: self.schema(depth + 1) for p in r.sample(PATTERNS, r.randrange(1, 3))}
        if r.random() < 0.2:
            schema["propertyNames"] = r.choice([True, False, {"pattern": r.choice(PATTERNS)}, {"maxLength": Number(1)},
                                                {"minLength": Number(2)}, {"enum": r.sample(KEYS, 3) + [None]},
                                                {"type": "integer"}, {"const": "a"}])
        if r.random() < 0.15:
            schema["dependentRequired"] = {k: r.sample(KEYS, r.randrange(3)) for k in r.sample(KEYS, r.randrange(3))}
        if r.random() < 0.15:
            schema["dependentSchemas"] = {k: self.schema(depth + 1) for k in r.sample(KEYS, r.randrange(3))}
        if r.random() < 0.15:
            schema["unevaluatedProperties"] = r.choice([False, self.schema(depth + 1)])
        if r.random() < 0.3:
            schema["minProperties"] = Number(r.randrange(4))
        if r.random() < 0.3:
            schema["maxProperties"] = Number(r.randrange(4))

    def schema(self, depth=0):
        r = self.rng
        schema = {}
        if r.random() < 0.05:
            return r.choice([True, False])
        kinds = r.sample(["number", "string", "array", "object", "null", "boolean", "integer"], r.choice([1, 1, 1, 2]))
        if r.random() < 0.8:
            schema["type"] = kinds if len(kinds) > 1 else kinds[0]
        if {"number", "integer"} & set(kinds):
            self.bounds(schema)
        if "string" in kinds:
            self.string(schema)
        if depth < 3 and "array" in kinds:
            self.array(schema, depth)
        if depth < 3 and "object" in kinds:
            self.object(schema, depth)
        if r.random() < 0.15:
            schema["enum"] = [self.value(2) for _ in range(r.randrange(1, 4))]
        if r.random() < 0.05:
            schema["const"] = self.value(1)
        if depth < 3 and r.random() < 0.25:
            schema[r.choice(["anyOf", "allOf", "oneOf"])] = [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]
        if depth < 3 and r.random() < 0.15:
            schema["not"] = self.schema(depth + 1)
        if depth < 3 and r.random() < 0.1:
            schema["if"] = self.schema(depth + 1)
            for name in ("then", "else"):
                if r.random() < 0.7:
                    schema[name] = self.schema(depth + 1)
        if r.random() < 0.15:
            schema["$ref"] = r.choice(["#/$defs/x", "#/$defs/y~1z"])
        keys = list(schema)
        r.shuffle(keys)
        return {k: schema[k] for k in keys}

    def root(self):
        schema = self.schema()
        if not isinstance(schema, dict):
            return schema
        schema["$defs"] = {"x": self.schema(1), "y/z": self.schema(2)}
        return schema

    def instance(self, schema, depth=0):
        """Something that often satisfies the schema."""
        r = self.rng
        if not isinstance(schema, dict) or r.random() < 0.15 or depth > 4:
            return self.value(depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return r.choice(schema["enum"])
        for name in ("anyOf", "allOf", "oneOf", "then", "else"):
            if name in schema and r.random() < 0.5:
                below = schema[name]
                return self.instance(r.choice(below) if isinstance(below, list) else below, depth + 1)
        kind = schema.get("type", r.choice(["object", "array", "string", "number"]))
        kind = r.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            known = schema.get("properties", {})
            out = {k: self.instance(v, depth + 1) for k, v in known.items() if r.random() < 0.8}
            for k in schema.get("required", []):
                out.setdefault(k, self.value(depth + 1))
            if r.random() < 0.3:
                out.setdefault(r.choice(KEYS), self.value(depth + 1))
            return out
        if kind == "array":
            prefix = schema.get("prefixItems", [])
            rest = schema.get("items", True)
            n = int(schema.get("minItems", 0)) + r.randrange(3)
            return [self.instance(prefix[i] if i < len(prefix) else rest, depth + 1) for i in range(n)]
        if kind in ("number", "integer"):
            return Number(r.choice(NUMBERS))
        return {"string": r.choice(STRINGS), "null": None, "boolean": True}[kind]


def exact(value):
    """For jsonschema: integers as int, everything else as exact decimals."""
    if isinstance(value, Number):
        number = decimal.Decimal(value)
        return int(number) if number == number.to_integral_value() else number
    if isinstance(value, dict):
        return {k: exact(v) for k, v in value.items()}
    if isinstance(value, list):
        return [exact(v) for v in value]
    return value


def validator_class(jsonschema):
    base = jsonschema.Draft202012Validator
    number = (int, float, decimal.Decimal)
    checker = base.TYPE_CHECKER.redefine_many({
        "number": lambda _, v: isinstance(v, number) and not isinstance(v, bool),
        "integer": lambda _, v: isinstance(v, int) and not isinstance(v, bool),
    })
    return jsonschema.validators.extend(base, type_checker=checker)


def verdicts(validator, schema, instances):
    """None where jsonschema does not come back from a circle of references."""
    try:
        return [validator(exact(schema)).is_valid(exact(v)) for v in instances]
    except RecursionError:
        return None
    except BaseException as error:  # a RecursionError inside of a compiled extension
        if type(error).__name__ != "PanicException":
            raise
        return None


def run_round(tap, driver, make, validator, counts):
    schema = make.root()
    if not isinstance(schema, dict):
        return None
    instances = [make.instance(schema) for _ in range(12)] + [make.value() for _ in range(4)]
    texts = [[dumps(v) for v in orders(value, 120)] for value in instances]
    answer = driver.ask({"id": 0, "schema": schema, "accept": [t for variants in texts for t in variants]})
    code = answer["error"]["code"] if answer.get("compile") != "ok" else "ok"
    counts[code] = counts.get(code, 0) + 1
    if code == "INVALID" and "refers to itself" in answer["error"]["message"]:
        return None
    valid = verdicts(validator, schema, instances)
    if valid is None:
        return None
    if code != "ok":
        alike = code == "UNSUPPORTED" and any(part in answer["error"]["message"] for part in UNBUILT)
        if not alike and (code not in ("UNSAT", "LIMIT") or (code == "UNSAT" and any(valid))):
            return "refused as %s: %s" % (answer["error"], dumps(schema))
        return None
    at = 0
    for variants, want in zip(texts, valid):
        got = any(answer["accept"][at:at + len(variants)])
        at += len(variants)
        counts["valid" if want else "invalid"] = counts.get("valid" if want else "invalid", 0) + 1
        if got != want and len(variants) < 120:
            return "%s should be %s: %s" % (variants[0], "valid" if want else "invalid", dumps(schema))
    return None


def main():
    tap = Tap()
    try:
        import jsonschema
    except ImportError:
        return tap.skip_all("needs the Python package jsonschema")
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 1500)
    tap.note("seed %d" % seed)
    driver, make = Driver(sys.argv[1]), Maker(random.Random(seed))
    validator, counts, failures = validator_class(jsonschema), {}, []
    for _ in range(rounds):
        problem = run_round(tap, driver, make, validator, counts)
        if problem:
            failures.append(problem)
    tap.note("verdicts " + ", ".join("%s %d" % item for item in sorted(counts.items())))
    for problem in failures[:20]:
        tap.note(problem)
    tap.check(not failures, "%d of %d schemas differ from jsonschema" % (len(failures), rounds))
    tap.check(counts.get("valid", 0) > rounds and counts.get("invalid", 0) > rounds, "both verdicts are common")
    tap.check(driver.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
