"""Reads a pprof profile by the public profile.proto, and prints what it says as JSON.

    read_pprof.py PROFILE.pb.gz
"""

import gzip
import json
import pathlib
import sys
import tempfile

from grpc_tools import protoc


def profile_class():
    here = pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        if protoc.main(["protoc", f"-I{here}", f"--python_out={folder}", "profile.proto"]) != 0:
            sys.exit("profile.proto does not compile")
        sys.path.insert(0, folder)
        import profile_pb2

        return profile_pb2.Profile


def main(path):
    profile = profile_class()()
    profile.ParseFromString(gzip.decompress(pathlib.Path(path).read_bytes()))
    text = profile.string_table
    assert text[0] == "" and len(set(text)) == len(text)
    names = [text[t.type] for t in profile.sample_type]
    functions = {f.id: f for f in profile.function}
    locations = {place.id: place for place in profile.location}
    mappings = {m.id: m for m in profile.mapping}
    assert 0 not in {*functions, *locations, *mappings}
    samples = []
    for sample in profile.sample:
        assert len(sample.value) == len(names) and sample.location_id
        stack = []
        for number in sample.location_id:
            place = locations[number]
            assert len(place.line) == 1
            function = functions[place.line[0].function_id]
            mapping = mappings[place.mapping_id] if place.mapping_id else None
            assert mapping is None or mapping.memory_start < mapping.memory_limit
            if mapping is not None and place.address:
                assert mapping.memory_start <= place.address < mapping.memory_limit
            stack.append(
                {
                    "function": text[function.name],
                    "file": text[function.filename],
                    "line": place.line[0].line,
                    "module": text[mapping.filename] if mapping else None,
                    "build_id": text[mapping.build_id] if mapping else None,
                }
            )
        labels = {text[label.key]: text[label.str] for label in sample.label}
        samples.append({"labels": labels, "stack": stack, **dict(zip(names, sample.value))})
    units = {text[t.type]: text[t.unit] for t in profile.sample_type}
    print(json.dumps({"units": units, "default": text[profile.default_sample_type], "samples": samples}))


main(sys.argv[1])
