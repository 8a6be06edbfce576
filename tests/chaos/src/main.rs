//! Soak and chaos in one command: random programs run under gputrace while processes are killed, disks fill and signals come,
//! and after each round it is checked what gputrace promises (judge/mod.rs has the list).
//!
//! All of a round follows from its seed: the program (program.rs), gputrace's options (options.rs), the misfortune and its
//! moment (misfortune.rs, round.rs). The program is `victim/victim.c`, which counts what it does in a file that survives it
//! (truth.rs) and runs twice, without gputrace and with it (play.rs). A round that fails prints its seed, and how to repeat it,
//! and leaves its folder. Its seed then goes into `seeds`, whose rounds run first each time.
//!
//! A seed determines what is done, not how the machine schedules it: a round may fail in one of ten repetitions.

mod arguments;
mod books;
mod judge;
mod misfortune;
mod options;
mod play;
mod products;
mod program;
mod random;
mod round;
mod stage;
mod system;
mod table;
mod truth;

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use arguments::Arguments;
use judge::CHECKS;
use products::{Products, repository};
use round::{Machine, Round};
use stage::Stage;
use system::Reaper;
use table::Table;

fn main() -> ExitCode {
    let done = Arguments::read(std::env::args().skip(1)).and_then(|arguments| chaos(&arguments));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(2)
        }
    }
}

/// Plays rounds until the time is over. False: one failed.
fn chaos(arguments: &Arguments) -> Result<bool, String> {
    let products = Products::find(arguments.gputrace.clone())?;
    system::adopt_orphans();
    let machine = Machine { mounts: system::own_mounts(), inline: products.inline };
    if !machine.mounts {
        println!("no disk can be mounted here: rounds with full and read-only disks are left out");
    }
    let master = arguments.master.unwrap_or_else(random::new_master);
    let known =
        fs::read_to_string(repository().join("tests/chaos/seeds")).map_err(|error| format!("seeds: {error}"))?;
    let known = match arguments.only {
        Some(only) => vec![only],
        None => arguments::seeds(&known)?,
    };
    let begin = Instant::now();
    let (mut table, mut reaper) = (Table::default(), Reaper::default());
    for seed in known {
        one(&products, &mut reaper, machine, seed, &mut table)?;
    }
    let of_seeds = table.rounds();
    let new = Instant::now();
    if arguments.only.is_none() {
        println!("master seed {master}, {} min", arguments.time.as_secs_f64() / 60.0);
        for number in 0.. {
            if new.elapsed() >= arguments.time {
                break;
            }
            one(&products, &mut reaper, machine, random::seed_of_round(master, number), &mut table)?;
        }
    }
    println!("\n{}", table.text());
    for seed in table.failed() {
        println!("failed: cargo run -p chaos -- --only {seed}");
    }
    let how =
        if table.failed().is_empty() { "all went well".to_owned() } else { format!("{} FAILED", table.failed().len()) };
    let (rounds, seconds) = (table.rounds(), begin.elapsed().as_secs());
    println!(
        "{rounds} rounds ({of_seeds} of known seeds) in {} min {} s, master seed {master}: {how}",
        seconds / 60,
        seconds % 60
    );
    products.remove();
    Ok(table.failed().is_empty())
}

/// Plays a round, judges it, and adds it to the table. Err: chaos itself fails.
fn one(products: &Products, reaper: &mut Reaper, machine: Machine, seed: u64, table: &mut Table) -> Result<(), String> {
    let round = Round::of(seed, machine);
    reaper.forget();
    let begin = Instant::now();
    let mut stage = Stage::new(products, reaper, seed)?;
    let of_seed = |error: String| format!("seed {seed}: {error}\n{}", round.lines());
    let played = play::play(&mut stage, &round).map_err(of_seed)?;
    let took = begin.elapsed();
    let found = judge::judge(&mut stage, &round, &played).map_err(of_seed)?;
    let bad = found.iter().any(|(_, wrong)| !wrong.is_empty());
    table.add(seed, round.misfortune.name(), &found);
    let happened = if played.happened { "" } else { " (over before)" };
    let seconds = |time: Duration| time.as_secs_f64();
    let word = if bad { "FAILED" } else { "ok" };
    println!(
        "{word:<6} {seed:<15}  {:<26} {:>5.2} s + {:>5.2} s{happened}",
        round.misfortune.name(),
        seconds(took),
        seconds(begin.elapsed() - took)
    );
    let folder = stage.folder.clone();
    if bad {
        print!("{}", round.lines());
        for (check, wrong) in found.iter().filter(|(_, wrong)| !wrong.is_empty()) {
            wrong.iter().take(8).for_each(|what| println!("   WRONG       {}: {what}", CHECKS[*check].0));
        }
        println!("   again       cargo run -p chaos -- --only {seed}\n   folder      {}", folder.display());
        keep_disk(&folder);
    }
    system::unmount(&folder.join("disk"));
    if !bad {
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(())
}

/// What is on a mounted disk is gone with it: of a failed round it is copied.
fn keep_disk(folder: &std::path::Path) {
    let disk = folder.join("disk");
    for file in books::files_below(&disk) {
        let Ok(below) = file.strip_prefix(&disk) else { continue };
        let to = folder.join("kept").join(below);
        if below.starts_with("full") || to.parent().is_none_or(|parent| fs::create_dir_all(parent).is_err()) {
            continue;
        }
        let _ = fs::copy(&file, to);
    }
}
