"""Holds reports against the schema: as it is, and so tightened that what it does not name is wrong.

    check_schema.py SCHEMA.json REPORT.json…
"""

import copy
import json
import pathlib
import sys

from jsonschema import Draft202012Validator


def tightened(schema):
    if isinstance(schema, list):
        return [tightened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tight = {key: tightened(value) for key, value in schema.items()}
    # Inside an `allOf` another part names the rest.
    if tight.get("type") == "object" and "properties" in tight:
        tight["additionalProperties"] = False
    return tight


schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
Draft202012Validator.check_schema(schema)
wrong = 0
for path in sys.argv[2:]:
    report = json.loads(pathlib.Path(path).read_text())
    for validator in (Draft202012Validator(schema), Draft202012Validator(tightened(copy.deepcopy(schema)))):
        for error in validator.iter_errors(report):
            print(f"{path}: {error.json_path}: {error.message}"[:500])
            wrong += 1
sys.exit(wrong > 0)
