//! What a graph holds, as it travels in a text when the graph is instantiated or updated ([`text_kind::GRAPH`]).
//!
//! [`text_kind::GRAPH`]: crate::event::text_kind::GRAPH
//!
//! The text is [`HEAD_WORDS`] words and then [`Kernel`]s of two words each, as many as there are:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | bits of [`flag`] |
//! | 1 | the graph's handle |
//! | 2 | the driver's own numbers of the graph (low half) and of the executable graph; 0 where it has none |
//! | 3 | nodes in the bodies of conditional nodes (low half), kernels among them |
//! | 4 to 11 | nodes by kind, two kinds a word |

/// Kinds of nodes that are counted apart, by CUgraphNodeType; the last one stands for those of newer drivers.
pub const KINDS: usize = 16;
/// A kernel.
pub const KERNEL: usize = 0;
/// A graph inside the graph, whose nodes count like its own.
pub const CHILD: usize = 4;
/// A node whose bodies run as often as the device decides.
pub const CONDITIONAL: usize = 13;
/// A kind that this version does not know.
pub const UNKNOWN: usize = KINDS - 1;

/// Words before the kernels.
pub const HEAD_WORDS: usize = 12;
/// Kernels (functions, not nodes) of one graph that travel by name.
pub const KERNELS_MAX: usize = 480;

const _: () = assert!(8 * (HEAD_WORDS + 2 * KERNELS_MAX) <= crate::event::TEXT_MAX_BYTES);

/// Bits of the first word.
pub mod flag {
    /// Not every node was read: there were too many, they were nested too deep, or the driver refused.
    pub const NODES_CUT: u64 = 1;
    /// There are more different kernels than [`KERNELS_MAX`](super::KERNELS_MAX).
    pub const KERNELS_CUT: u64 = 2;
    /// A conditional node has bodies that could not be looked into.
    pub const BODIES_CUT: u64 = 4;
}

/// Why a graph's content travels, or what was done to a node.
pub mod action {
    /// It was instantiated: number is the number of the instantiation in its process.
    pub const INSTANTIATE: u64 = 1;
    /// The executable graph was updated from a whole graph.
    pub const UPDATE: u64 = 2;
    /// A node was switched off: number is its handle, no text follows.
    pub const DISABLE: u64 = 3;
    /// A node was switched on again.
    pub const ENABLE: u64 = 4;
}

/// The number of a text about a graph: what was done, the kind of the node that it was done to, and a number or handle
/// of 48 bits.
pub const fn pack_action(action: u64, kind: usize, number: u64) -> u64 {
    number & 0xffff_ffff_ffff | (kind as u64 & 0xff) << 48 | action << 56
}

/// What [`pack_action`] packed.
pub const fn unpack_action(word: u64) -> (u64, usize, u64) {
    (word >> 56, (word >> 48 & 0xff) as usize, word & 0xffff_ffff_ffff)
}

/// What a graph holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Bits of [`flag`].
    pub flags: u64,
    /// The graph's handle.
    pub graph: u64,
    /// The driver's own number of the graph; 0: it has none.
    pub graph_id: u32,
    /// The driver's own number of the executable graph; 0: it has none.
    pub exec_id: u32,
    /// Nodes by kind, those of child graphs too, without those in bodies of conditional nodes.
    pub nodes: [u32; KINDS],
    /// Nodes in the bodies of conditional nodes.
    pub conditional_nodes: u32,
    /// Kernels among them.
    pub conditional_kernels: u32,
}

impl Contents {
    /// As words.
    pub fn words(&self) -> [u64; HEAD_WORDS] {
        let mut words = [0; HEAD_WORDS];
        let [flags, graph, ids, conditional, nodes @ ..] = &mut words;
        *flags = self.flags;
        *graph = self.graph;
        *ids = pair(self.graph_id, self.exec_id);
        *conditional = pair(self.conditional_nodes, self.conditional_kernels);
        for (word, two) in nodes.iter_mut().zip(self.nodes.as_chunks::<2>().0) {
            *word = pair(two[0], two[1]);
        }
        words
    }

    /// What words say. Any words are contents; none is trusted.
    pub fn from_words(words: &[u64; HEAD_WORDS]) -> Contents {
        let [flags, graph, ids, conditional, counts @ ..] = words;
        let mut nodes = [0; KINDS];
        for (two, word) in nodes.as_chunks_mut::<2>().0.iter_mut().zip(counts) {
            *two = [*word as u32, (*word >> 32) as u32];
        }
        Contents {
            flags: *flags,
            graph: *graph,
            graph_id: *ids as u32,
            exec_id: (*ids >> 32) as u32,
            nodes,
            conditional_nodes: *conditional as u32,
            conditional_kernels: (*conditional >> 32) as u32,
        }
    }
}

/// How many nodes of a graph launch a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Handle of the CUfunction or CUkernel.
    pub function: u64,
    /// Nodes that run at each launch.
    pub nodes: u32,
    /// Nodes in the bodies of conditional nodes.
    pub conditional_nodes: u32,
}

impl Kernel {
    /// As words.
    pub fn words(&self) -> [u64; 2] {
        [self.function, pair(self.nodes, self.conditional_nodes)]
    }

    /// What two words say.
    pub fn from_words([function, nodes]: [u64; 2]) -> Kernel {
        Kernel { function, nodes: nodes as u32, conditional_nodes: (nodes >> 32) as u32 }
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_and_kernels_survive_their_words() {
        let contents = Contents {
            flags: flag::KERNELS_CUT,
            graph: u64::MAX,
            graph_id: 3,
            exec_id: u32::MAX,
            nodes: core::array::from_fn(|kind| kind as u32 * 1000 + 1),
            conditional_nodes: 5,
            conditional_kernels: 4,
        };
        assert_eq!(Contents::from_words(&contents.words()), contents);
        let kernel = Kernel { function: 1 << 63, nodes: u32::MAX, conditional_nodes: 7 };
        assert_eq!(Kernel::from_words(kernel.words()), kernel);
    }

    #[test]
    fn actions_survive_packing() {
        let packed = pack_action(action::DISABLE, CONDITIONAL, 0x7fff_1234_5678);
        assert_eq!(unpack_action(packed), (action::DISABLE, CONDITIONAL, 0x7fff_1234_5678));
    }
}
