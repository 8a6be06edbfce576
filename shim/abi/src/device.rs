//! What a device is, as its driver says it: the head of a text of kind [`crate::event::text_kind::DEVICE`].
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 16 | UUID |
//! | 16 | 8 | bytes of its memory |
//! | 24 | 32 | eight attributes ([`ATTRIBUTES`]), 0 where the driver does not know one |
//! | 56 | 16 | PCI address as text, zero padded |
//!
//! The device's name follows.

/// A device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// UUID.
    pub uuid: [u8; 16],
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Values of [`ATTRIBUTES`].
    pub attributes: [i32; 8],
    /// PCI address, zero padded.
    pub pci: [u8; 16],
}

/// Numbers of the attributes (CUdevice_attribute): multiprocessors, clock in kHz, clock of the memory in kHz, width of
/// its bus in bits, compute capability (two numbers), threads of a multiprocessor, bytes of the L2 cache.
pub const ATTRIBUTES: [u32; 8] = [16, 13, 36, 37, 75, 76, 39, 38];

/// Bytes before the name.
pub const HEAD_BYTES: usize = 72;

impl Device {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let attributes = self.attributes.map(i32::to_le_bytes);
        let parts = self.uuid.into_iter().chain(self.memory_bytes.to_le_bytes());
        let parts = parts.chain(attributes.as_flattened().iter().copied()).chain(self.pci);
        bytes.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        bytes
    }

    /// Out of bytes, with the name; none when there are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Device, &[u8])> {
        let (uuid, rest) = bytes.split_first_chunk()?;
        let (memory, mut rest) = rest.split_first_chunk()?;
        let mut device = Device { uuid: *uuid, memory_bytes: u64::from_le_bytes(*memory), ..Device::default() };
        for attribute in &mut device.attributes {
            let (value, more) = rest.split_first_chunk()?;
            (*attribute, rest) = (i32::from_le_bytes(*value), more);
        }
        let (pci, name) = rest.split_first_chunk()?;
        device.pci = *pci;
        Some((device, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_device_survives_its_bytes_and_a_short_text_is_none() {
        let device = Device {
            uuid: *b"fake-cuda-gpu-07",
            memory_bytes: 141 << 30,
            attributes: [132, -1, 3, 4, 5, 6, 7, i32::MAX],
            pci: *b"0000:01:00.0\0\0\0\0",
        };
        let bytes: Vec<u8> = device.to_bytes().into_iter().chain(*b"Name").collect();
        assert_eq!(Device::from_bytes(&bytes), Some((device, &b"Name"[..])));
        assert!((0..HEAD_BYTES).all(|length| Device::from_bytes(&bytes[..length]).is_none()));
    }
}
