"""Reads a Perfetto trace by Perfetto's own message types as its trace processor would, and prints what it says as JSON.

    read_perfetto.py TRACE
"""

import json
import pathlib
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

trace = proto.Trace()
trace.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
tracks, events = {}, []
interned = {}
for order, packet in enumerate(trace.packet):
    sequence = packet.trusted_packet_sequence_id
    assert sequence > 0
    if packet.sequence_flags & proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        interned[sequence] = {"category": {}, "name": {}, "annotation": {}, "string": {}}
    known = interned.get(sequence)
    for kind, entries in (
        ("category", packet.interned_data.event_categories),
        ("name", packet.interned_data.event_names),
        ("annotation", packet.interned_data.debug_annotation_names),
    ):
        for entry in entries:
            assert entry.iid not in known[kind]
            known[kind][entry.iid] = entry.name
    for entry in packet.interned_data.debug_annotation_string_values:
        known["string"][entry.iid] = entry.str.decode()
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks
        assert not track.parent_uuid or track.parent_uuid in tracks
        tracks[track.uuid] = track
    if packet.HasField("track_event"):
        events.append((packet.timestamp, order, sequence, packet.track_event))

events.sort(key=lambda e: e[:2])
opened, slices, counters, instants = {}, [], {}, []
for at, _, sequence, event in events:
    track, known = tracks[event.track_uuid], interned[sequence]
    name = event.name or known["name"].get(event.name_iid, "")
    told = {known["annotation"][a.name_iid]: a for a in event.debug_annotations}
    if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
        # Slices of one track must not overlap.
        assert event.track_uuid not in opened, name
        slice = {"track": track.name, "name": name, "begin": at, "end": None}
        slice["category"] = [known["category"][c] for c in event.category_iids]
        if told:
            slice |= {"bytes": told["bytes"].uint_value, "step": told["step"].uint_value}
            slice |= {"address": told["address"].pointer_value}
            slice["stack"] = known["string"][told["stack"].string_value_iid]
        opened[event.track_uuid] = slice
        slices.append(slice)
    elif event.type == proto.TrackEvent.TYPE_SLICE_END:
        slice = opened.pop(event.track_uuid)
        slice["end"] = at
        assert slice["begin"] <= at
    elif event.type == proto.TrackEvent.TYPE_COUNTER:
        assert track.counter.unit == proto.CounterDescriptor.UNIT_SIZE_BYTES
        counters[track.name] = event.counter_value
    else:
        instants.append(name)
processes = [{"pid": t.process.pid, "name": t.process.process_name} for t in tracks.values() if t.HasField("process")]
print(json.dumps({"processes": processes, "slices": slices, "counters": counters, "instants": instants}))
