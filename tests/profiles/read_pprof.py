"""Reads a profile of pprof's with Google's protobuf library, and prints it as JSON. The messages are made here of the numbers and types
of fields that profile.proto publishes (github.com/google/pprof/blob/main/proto/profile.proto)."""

import gzip
import json
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Field = descriptor_pb2.FieldDescriptorProto
MESSAGES = {
    "ValueType": "1 type int64, 2 unit int64",
    "Label": "1 key int64, 2 str int64, 3 num int64, 4 num_unit int64",
    "Sample": "1 location_id uint64*, 2 value int64*, 3 label Label*",
    "Mapping": "1 id uint64, 2 memory_start uint64, 3 memory_limit uint64, 4 file_offset uint64, 5 filename int64, 6 build_id int64, "
    "7 has_functions bool, 8 has_filenames bool, 9 has_line_numbers bool, 10 has_inline_frames bool",
    "Line": "1 function_id uint64, 2 line int64, 3 column int64",
    "Location": "1 id uint64, 2 mapping_id uint64, 3 address uint64, 4 line Line*, 5 is_folded bool",
    "Function": "1 id uint64, 2 name int64, 3 system_name int64, 4 filename int64, 5 start_line int64",
    "Profile": "1 sample_type ValueType*, 2 sample Sample*, 3 mapping Mapping*, 4 location Location*, 5 function Function*, "
    "6 string_table string*, 7 drop_frames int64, 8 keep_frames int64, 9 time_nanos int64, 10 duration_nanos int64, "
    "11 period_type ValueType, 12 period int64, 13 comment int64*, 14 default_sample_type int64, 15 doc_url int64",
}

file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
for name, fields in MESSAGES.items():
    message = file.message_type.add(name=name)
    for number, field, kind in (text.split() for text in fields.split(", ")):
        plain = kind.rstrip("*")
        is_message = plain in MESSAGES
        message.field.add(
            name=field,
            number=int(number),
            label=Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL,
            type=Field.TYPE_MESSAGE if is_message else Field.Type.Value(f"TYPE_{plain.upper()}"),
            type_name=f".pprof.{plain}" if is_message else None,
        )
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
with gzip.open(sys.argv[1]) as opened:
    profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile")).FromString(opened.read())


def known(message):
    """Refuses what the messages do not have: a field by another number or type."""
    unknown = type(message)()
    unknown.CopyFrom(message)
    unknown.DiscardUnknownFields()
    assert unknown.SerializeToString() == message.SerializeToString(), "fields that profile.proto does not have"
    return message


texts = known(profile).string_table
functions = {function.id: function for function in profile.function}
locations = {location.id: location for location in profile.location}


def frame(number):
    line = locations[number].line[0]
    function = functions[line.function_id]
    return [texts[function.name], texts[function.filename], line.line]


json.dump(
    {
        "types": [[texts[kind.type], texts[kind.unit]] for kind in profile.sample_type],
        "default": texts[profile.default_sample_type],
        "samples": [
            {
                "frames": [frame(number) for number in reversed(sample.location_id)],
                "values": list(sample.value),
                "labels": {texts[label.key]: texts[label.str] or label.num for label in sample.label},
            }
            for sample in profile.sample
        ],
    },
    sys.stdout,
)
