"""Reads a trace of Perfetto's with the messages that Perfetto itself publishes, by the rules of its documentation: interned texts,
times told as differences, ends that close the innermost open bar of a track. Prints what it found as JSON."""

import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

trace = pb.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
Event = pb.TrackEvent
texts, tracks, events, clocks = {}, {}, [], {}
for place, packet in enumerate(trace.packet):
    assert not packet._unknown_fields if hasattr(packet, "_unknown_fields") else True
    assert packet.trusted_packet_sequence_id == 1
    for clock in packet.clock_snapshot.clocks:
        clocks[clock.clock_id] = clock.timestamp
    if packet.HasField("interned_data"):
        data = packet.interned_data
        for kind in ("event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values"):
            for entry in getattr(data, kind):
                assert (kind, entry.iid) not in texts
                texts[kind, entry.iid] = entry.str.decode() if kind.endswith("values") else entry.name
    if packet.HasField("track_descriptor"):
        of = packet.track_descriptor
        assert of.uuid not in tracks
        tracks[of.uuid] = of
    if packet.HasField("track_event"):
        if packet.timestamp_clock_id == 0:
            clocks[64] += packet.timestamp
            at = clocks[64]
        else:
            assert packet.timestamp_clock_id == 6
            at = packet.timestamp
        event = packet.track_event
        assert event.track_uuid in tracks, "a track is described before it is used"
        events.append((at, place, event))


def name(track):
    of = tracks[track]
    if of.HasField("thread"):
        return f"thread {of.thread.tid} of {of.thread.pid}"
    if of.HasField("process"):
        return f"process {of.process.pid}"
    return f"{name(of.parent_uuid)}: {of.name}" if of.parent_uuid else of.name


# The reader sorts by time; what has one time keeps its order in the file.
events.sort(key=lambda event: event[:2])
slices, values, open_bars = [], [], {}
for at, _, event in events:
    stack = open_bars.setdefault(event.track_uuid, [])
    if event.type == Event.TYPE_COUNTER:
        assert tracks[event.track_uuid].HasField("counter")
        values.append([name(event.track_uuid), at, event.double_counter_value])
        continue
    if event.type == Event.TYPE_SLICE_END:
        slices.append(stack.pop() | {"end": at})
        continue
    bar = {
        "track": name(event.track_uuid),
        "start": at,
        "name": texts["event_names", event.name_iid],
        "category": texts["event_categories", event.category_iids[0]],
        "flows": list(event.flow_ids),
        "args": {
            texts["debug_annotation_names", arg.name_iid]: texts["debug_annotation_string_values", arg.string_value_iid]
            if arg.HasField("string_value_iid")
            else arg.int_value
            for arg in event.debug_annotations
        },
    }
    if event.type == Event.TYPE_INSTANT:
        slices.append(bar | {"end": None})
    else:
        assert event.type == Event.TYPE_SLICE_BEGIN
        stack.append(bar)
assert not any(open_bars.values()), "every bar ends"
json.dump({"slices": slices, "values": values}, sys.stdout)
