//! Messages to encoders of copies and sets, but for those ([`super::copies`]).

use super::{messages, names};
use crate::interpose::objc::Id;

messages! {
    /// Encodes copies and sets.
    BLIT: "MTLBlitCommandEncoder", from super::compute::END,
        needs ["fillBuffer:range:value:", "endEncoding"];

    Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
    Encode END_ENCODER end "endEncoding" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
}
