//! Messages of Protocol Buffers, written by hand: the few kinds of fields that pprof's profiles and Perfetto's traces have.
//!
//! A field is its number and kind, then a number of seven bits a byte, eight bytes, or a length and so many bytes. Fields that
//! hold nothing or 0 are left out, as the format wants it, but for those of a repeated field and those that are said to be there.

/// A message, as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    /// The message's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The message's bytes, and nobody else's.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A number that is not there when it is 0.
    pub(super) fn number(&mut self, field: u32, value: i64) {
        if value != 0 {
            self.stated(field, value);
        }
    }

    /// A number that is there even when it is 0.
    pub(super) fn stated(&mut self, field: u32, value: i64) {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value as u64);
    }

    /// A number of eight bytes.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | EIGHT_BYTES);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A message, or one of several, or a text of several.
    pub(super) fn part(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Numbers of a repeated field, packed.
    pub(super) fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = i64>) {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value as u64));
        self.part(field, packed.bytes());
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's own description.
    #[test]
    fn fields_are_written_as_the_format_is_described() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.part(2, b"testing");
        assert_eq!(message.bytes(), b"\x12\x07testing");
        let mut outer = Message::default();
        let mut inner = Message::default();
        inner.number(1, 150);
        outer.part(3, inner.bytes());
        assert_eq!(outer.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.numbers(6, [3, 270, 86942]);
        assert_eq!(message.bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let mut message = Message::default();
        message.number(1, 0);
        message.number(2, -1);
        assert_eq!(message.bytes().len(), 11);
        let mut message = Message::default();
        message.stated(1, 0);
        message.fixed(2, 1);
        assert_eq!(message.into_bytes(), [0x08, 0, 0x11, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
