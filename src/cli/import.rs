//! Options of `import`.

use std::path::PathBuf;

use clap::Args;

/// Options of `import`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Formats, found by the content: torch.profiler's JSON (Kineto), plain or gzip, also where it was cut off; \
                  Nsight Systems' sqlite (nsys export --type sqlite report.nsys-rep); PyTorch's memory snapshots \
                  (torch.cuda.memory._dump_snapshot), of which nothing is run. Files that the simulated driver wrote \
                  (FAKE_CUDA_TRUTH) add the GPU times of their process to the recorded trace.\n\nExit code: 0 when every file was \
                  imported; 1 if one cannot be read; 2 if import was called wrongly.\n\nExamples:\n  \
                  gputrace import rank0.json.gz rank1.json.gz -o trace\n  \
                  gputrace import report.sqlite -o trace && gputrace report trace\n  \
                  gputrace import memory.pickle -o trace && gputrace report trace --only device-memory"
)]
pub(crate) struct ImportArgs {
    /// Files to import; of a distributed run one a rank
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Folder of the trace: a new one, or one of earlier imports, to which these are added
    #[arg(short, long, value_name = "TRACE", required = true)]
    pub(crate) output: PathBuf,
}
