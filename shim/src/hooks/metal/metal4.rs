//! Metal 4: queues to which several command buffers are committed at once, and whose times come as feedback.

pub(crate) mod queue {
    use core::hint::cold_path;
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use crate::hooks::metal::{feedback, messages};
    use crate::interpose::objc::{Id, Known, Sel, Selector, code, object_getClass};
    use crate::interpose::owner;
    use crate::thread::State;

    messages! {
        /// A queue of Metal 4's.
        QUEUE: "MTL4CommandQueue", from crate::hooks::metal::event::END, needs ["commit:count:", "device"];

        // The same with options of ours, through which the times come, where Metal's own is left out by that.
        Commit NONE commit "commit:count:" "v@:^@Q" (buffers: *const Id, count: usize) -> ()
            [begin::<SLOT>; |this: Id, number: usize| with_options::<SLOT>(this, buffers, count, number)]
            => @at |this, (), number, at| feedback::committed(this, buffers, count, number, at);
        // The program's own options stay as they are: it may use them again.
        Commit NONE commitWithOptions "commit:count:options:" "v@:^@Q@" (buffers: *const Id, count: usize, options: Id) -> ()
            => @at |this, (), at| feedback::committed(this, buffers, count, 0, at);
        Api NONE signal "signalEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
            => |this, ()| [event as u64, this as u64, 0, value];
        Sync STREAM_WAIT wait "waitForEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
            => |this, ()| [event as u64, this as u64, value, 0];
    }

    /// Whether commits of a slot's class may go by options instead. What the message without options called when it was looked whether it may go the way with them, and whether it may.
    static WAYS: [(AtomicUsize, AtomicU8); 4] = [const { (AtomicUsize::new(0), AtomicU8::new(AS_IT_IS)) }; 4];
    const BY_OPTIONS: u8 = 1;
    const AS_IT_IS: u8 = 2;

    /// The number of a commit whose times come by options of ours; 0: it goes its own way.
    #[inline(always)]
    fn begin<const SLOT: usize>(this: Id, state: &'static State) -> usize {
        let Some((of, way)) = WAYS.get(SLOT) else { return 0 };
        let plain = commit::ORIGINALS.at::<SLOT>();
        // SYNC POINT: way. Acquire, with the Release below: who sees whose way it is sees the way.
        if of.load(Ordering::Acquire) != plain as usize {
            cold_path();
            way.store(self::way(plain, commitWithOptions::ORIGINALS.at::<SLOT>()), Ordering::Relaxed);
            of.store(plain as usize, Ordering::Release);
        }
        let way = way.load(Ordering::Relaxed);
        if way == BY_OPTIONS && is_still_ours::<SLOT>(this) { feedback::begin(state) } else { 0 }
    }

    /// The method with options is the same but for these where both are Metal's. Another one's would never be called, and a layer may
    /// have none with options.
    #[cold]
    #[inline(never)]
    fn way(plain: *const (), with_options: *const ()) -> u8 {
        let is_metals = || owner::is_the_systems(plain) || owner::are_of_one(plain, with_options);
        if !with_options.is_null() && is_metals() { BY_OPTIONS } else { AS_IT_IS }
    }

    static WITH_OPTIONS: Selector = Selector::new(c"commit:count:options:");

    /// Whether the method with options is our hook's, as it was when the class was hooked: another one's that came after it
    /// would never be called.
    #[inline(always)]
    fn is_still_ours<const SLOT: usize>(this: Id) -> bool {
        static METHODS: [Known; 4] = [const { Known::new() }; 4];
        let ours = MESSAGES.get(Index::commitWithOptions as usize).and_then(|message| message.trampolines.get(SLOT));
        let Some((ours, known)) = ours.zip(METHODS.get(SLOT)) else { return false };
        // SAFETY: the queue that is sent a message.
        let class = unsafe { object_getClass(this) };
        let method = known.of(class).unwrap_or_else(|| known.ask_own(class, &WITH_OPTIONS));
        *ours == code(method)
    }

    /// Past our own hook.
    #[inline(always)]
    fn with_options<const SLOT: usize>(this: Id, buffers: *const Id, count: usize, number: usize) {
        type Code = unsafe extern "C" fn(Id, Sel, *const Id, usize, Id);
        let options = feedback::options(number);
        // SAFETY: the method of this selector of the object's class, which is there: its signature was compared.
        let code: Code = unsafe { core::mem::transmute(commitWithOptions::ORIGINALS.at::<SLOT>()) };
        // SAFETY: the program's own arguments, and options.
        unsafe { code(this, WITH_OPTIONS.get(), buffers, count, options) };
        feedback::returned(number);
    }
}

pub(crate) mod buffer {
    use gputrace_abi::metal::encoder;

    use crate::hooks::metal::compute::COMPUTE;
    use crate::hooks::metal::copies::COPIES;
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// A command buffer of Metal 4's.
        BUFFER: "MTL4CommandBuffer", from super::queue::END, needs ["beginCommandBufferWithAllocator:", "endCommandBuffer"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
        // What was encoded into it before and not committed is gone.
        Api NONE begin "beginCommandBufferWithAllocator:" "v@:@" (allocator: Id) -> () => |this, ()| [this as u64, 0, 0, 0];
        Api NONE beginWithOptions "beginCommandBufferWithAllocator:options:" "v@:@@" (allocator: Id, options: Id) -> ()
            => |this, ()| [this as u64, 0, 0, 0];
        Encode ENCODER compute "computeCommandEncoder" "@@:" () -> Id => |this, made| {
            COMPUTE.meet(made);
            COPIES.meet(made);
            [made as u64, this as u64, 0, encoder::COMPUTE]
        };
        Encode ENCODER render "renderCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
            => |this, made| [made as u64, this as u64, 0, encoder::RENDER];
    }
}
