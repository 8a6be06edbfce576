//! Messages to events that the host and several queues share.

use super::messages;
use crate::interpose::objc::Id;

messages! {
    /// A number that the host and GPUs wait for.
    SHARED_EVENT: "MTLSharedEvent", from super::resources::pipeline::END, needs ["signaledValue", "setSignaledValue:"];

    Sync EVENT wait "waitUntilSignaledValue:timeoutMS:" "B@:QQ" (value: u64, milliseconds: u64) -> u8
        => |this, _| [this as u64, 0, value, milliseconds];
    // Who asks again and again waits, and for less time than two readings of the clock.
    Count NONE signaled "signaledValue" "Q@:" () -> u64 => ();
    Api NONE signal "setSignaledValue:" "v@:Q" (value: u64) -> () => |this, ()| [this as u64, 0, 0, value];
    Api NONE notify "notifyListener:atValue:block:" "v@:@Q@?" (listener: Id, value: u64, block: Id) -> ()
        => |this, ()| [this as u64, 0, 0, value];
}
