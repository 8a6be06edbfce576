//! Devices and their numbers, which stand where CUDA's events have their context's.

use core::hint::cold_path;
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::device::Device;
use gputrace_abi::event::{self, Event, text_kind};
use gputrace_abi::layout::note;

use super::device::DEVICE;
use crate::interpose::objc::{self, Id, send};
use crate::{record, session, thread};

/// Devices by number - 1. One that goes away keeps its number.
static DEVICES: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The program was given a device.
pub(super) fn meet(device: Id) {
    if device.is_null() {
        return;
    }
    DEVICE.meet(device);
    for (ordinal, place) in DEVICES.iter().enumerate() {
        match place.compare_exchange(0, device as usize, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                COUNT.fetch_add(1, Ordering::Relaxed);
                return announce(device, ordinal);
            }
            Err(known) if known == device as usize => return,
            Err(_) => {}
        }
    }
    session::say(note::CONTEXTS_FULL);
}

/// A device is sent a message: it is one that no function of Metal's gave to the program, if it is not known.
#[inline(always)]
pub(super) fn seen(device: Id) {
    let [first, ..] = &DEVICES;
    if first.load(Ordering::Relaxed) != device as usize {
        cold_path();
        meet_late(device);
    }
}

/// What a layer for debugging sends to the device behind it is none of the program's messages, and that device no other GPU.
#[cold]
#[inline(never)]
pub(super) fn meet_late(device: Id) {
    let here = 0u8;
    let known = || DEVICES.iter().map(|place| place.load(Ordering::Relaxed)).filter(|known| *known != 0);
    if device.is_null() || known().any(|known| known == device as usize) {
        return;
    }
    let is_a_layers =
        thread::state_slow().is_none_or(|state| record::is_inside_a_call(state, &raw const here as usize));
    let number = |device: Id| send!(device, "registryID"; u64);
    if !is_a_layers && known().all(|known| number(known as Id) != number(device)) {
        meet(device);
    }
}

/// The number of an object's device; 0 when it is not known.
#[inline(always)]
pub(crate) fn number(object: Id) -> u16 {
    match COUNT.load(Ordering::Relaxed) {
        // Whatever it is an object of, there is no other.
        count @ 0..=1 => count as u16,
        _ => ask(object),
    }
}

#[inline(never)]
fn ask(object: Id) -> u16 {
    let find = |device: usize| DEVICES.iter().position(|place| place.load(Ordering::Relaxed) == device);
    // Not every encoder says whose it is.
    let device = || Some(send!(object, "device"; Id) as usize).filter(|device| *device != 0);
    let place = find(object as usize).or_else(|| device().and_then(find));
    place.map_or(0, |ordinal| ordinal as u16 + 1)
}

/// Tells the collector what the device is.
fn announce(device: Id, ordinal: usize) {
    let Some(state) = thread::state_slow() else { return };
    let now = session::now();
    let mut about = Device { memory_bytes: send!(device, "recommendedMaxWorkingSetSize"; u64), ..Device::default() };
    for (place, byte) in about.uuid.iter_mut().zip(send!(device, "registryID"; u64).to_be_bytes()) {
        *place = byte;
    }
    let name = objc::text(send!(device, "name"; Id)).map_or(&b""[..], |name| name.to_bytes());
    state.write_texts(text_kind::DEVICE, ordinal as u64, 0, [&about.to_bytes(), name, &[]], now);
    state.write_apart(Event {
        hook: event::KIND_CONTEXT,
        start: now,
        end: now,
        context: ordinal as u16 + 1,
        payload: [device as u64, 0, ordinal as u64, 0],
        ..Event::default()
    });
}
