//! The end of a message to an object of Metal's that is being recorded.

use gputrace_abi::Event;

use super::Call;
use crate::hooks::Hook;

impl Call<'_> {
    /// Writes the event of a message, which has its hook, times and payload, and leaves.
    #[inline(always)]
    pub(crate) fn end(self, hook: Hook, mut event: Event, result: u32) {
        event.flags = hook.flags;
        event.result = result.min(u32::from(u16::MAX)) as u16;
        self.layer.state.write(event, hook.class);
        self.leave();
    }
}
