//! Functions of Python, where the profiler recorded them (`with_stack=True`): the frames of the calls made inside of them.
//!
//! An event is one call of a function: `train.py(10): step`, `<built-in method item of Tensor object at 0x7f..>`,
//! `nn.Module: Linear_0`. The number is the line at which the function begins, not the one that it was at. Files are named
//! from their folder of `sys.path` on, which does not say whose they are: well-known packages and Python's own modules are
//! told by their first part.

use gputrace_collectors::archive::StackRow;

/// Packages that a user installs, and whose lines he cannot change.
const INSTALLED: &[&str] = &[
    "IPython",
    "PIL",
    "_pytest",
    "accelerate",
    "apex",
    "bitsandbytes",
    "click",
    "composer",
    "cuda",
    "cupy",
    "cv2",
    "datasets",
    "deepspeed",
    "diffusers",
    "einops",
    "fastai",
    "flash_attn",
    "flashinfer",
    "flax",
    "fsspec",
    "huggingface_hub",
    "hydra",
    "ignite",
    "ipykernel",
    "jax",
    "jaxlib",
    "lightning",
    "lightning_fabric",
    "mlflow",
    "numba",
    "numpy",
    "nvtx",
    "omegaconf",
    "onnxruntime",
    "optax",
    "pandas",
    "peft",
    "pluggy",
    "pytest",
    "pytorch_lightning",
    "ray",
    "safetensors",
    "scipy",
    "sentencepiece",
    "sglang",
    "sklearn",
    "tensorboard",
    "timm",
    "tokenizers",
    "torch",
    "torchao",
    "torchaudio",
    "torchdata",
    "torchmetrics",
    "torchvision",
    "tqdm",
    "transformers",
    "triton",
    "trl",
    "typer",
    "vllm",
    "wandb",
    "xformers",
];

/// Modules of Python's own library that call others.
const STANDARD: &[&str] = &[
    "abc",
    "ast",
    "asyncio",
    "cProfile",
    "codecs",
    "collections",
    "concurrent",
    "contextlib",
    "copy",
    "ctypes",
    "dataclasses",
    "enum",
    "functools",
    "importlib",
    "inspect",
    "json",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "posixpath",
    "queue",
    "random",
    "re",
    "runpy",
    "selectors",
    "shutil",
    "signal",
    "site",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "traceback",
    "typing",
    "unittest",
    "urllib",
    "warnings",
    "weakref",
    "zipfile",
];

/// The frame that an event's name stands for.
pub(super) fn frame(name: &str) -> StackRow {
    let row = |function: &str, file: String, line| StackRow {
        language: "python",
        function: function.into(),
        file: Some(file.into()),
        line,
        ..StackRow::default()
    };
    if let Some(module) = name.strip_prefix("nn.Module: ") {
        return row(module, "<nn.Module>".to_owned(), None);
    }
    let placed = name.rsplit_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse::<i32>().ok()?, function))
    });
    match placed {
        Some((file, line, function)) => row(function, whose(file), Some(line).filter(|line| *line > 0)),
        // An address in it would make another frame of every object's method.
        None => {
            let text = name.trim_start_matches('<').trim_end_matches('>');
            let text = ["built-in method ", "built-in function "]
                .iter()
                .find_map(|prefix| text.strip_prefix(prefix))
                .unwrap_or(text);
            row(
                text.split(" of ").next().unwrap_or(text).split(" at 0x").next().unwrap_or(text),
                "<built-in>".to_owned(),
                None,
            )
        }
    }
}

/// A file that belongs to nobody who could change it says so at its front.
fn whose(file: &str) -> String {
    let first = file.split('/').next().unwrap_or_default();
    let module = first.strip_suffix(".py").unwrap_or(first);
    match () {
        () if file.starts_with(['/', '<']) => file.to_owned(),
        () if INSTALLED.contains(&module) => format!("<site-packages>/{file}"),
        () if STANDARD.contains(&module) => format!("<standard library>/{file}"),
        () => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_name_says_function_file_and_line() {
        for (name, function, file, line) in [
            ("train.py(10): step", "step", "train.py", Some(10)),
            ("my package/a(b).py(3): f.<locals>.g", "f.<locals>.g", "my package/a(b).py", Some(3)),
            ("/opt/app/serve.py(7): <module>", "<module>", "/opt/app/serve.py", Some(7)),
            (
                "torch/nn/modules/module.py(1775): _call_impl",
                "_call_impl",
                "<site-packages>/torch/nn/modules/module.py",
                Some(1775),
            ),
            ("threading.py(1032): run", "run", "<standard library>/threading.py", Some(1032)),
            ("<string>(1): <module>", "<module>", "<string>", Some(1)),
            ("<built-in method item of Tensor object at 0x7f3a>", "item", "<built-in>", None),
            ("<built-in function linear>", "linear", "<built-in>", None),
            ("nn.Module: Linear_0", "Linear_0", "<nn.Module>", None),
            ("odd", "odd", "<built-in>", None),
        ] {
            let row = frame(name);
            assert_eq!((&*row.function, row.file.as_deref(), row.line), (function, Some(file), line), "{name}");
        }
    }

    #[test]
    fn lists_stand_in_order() {
        assert!(INSTALLED.is_sorted() && STANDARD.is_sorted());
    }
}
