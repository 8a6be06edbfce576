//! Draws what the victim does, as the plan that `victim/plan.h` reads.
//!
//! | key | meaning |
//! |---|---|
//! | `driver` | `instant`: the simulated one, calls take no time; `timed`: they do; `odd`: that of tests/programs/odd_driver.c |
//! | `route` | how functions are found: `dlsym` or `procaddr` |
//! | `threads`, `lives`, `operations` | beside the first one; how often they are made anew; what each does before it ends |
//! | `kinds` | L launches, l long ones, C copies, S waits, G graphs, M device memory, H blocks, X blocks that others free, D libraries, R depth, W waits for the system |
//! | `stack` | KiB of a thread's stack |
//! | `pause`, `every` | so many us of rest after so many operations |
//! | `hz`, `handler`, `altstack`, `jumps` | signals a second in each thread; whether their handler launches, and on which stack; how often launches are left by siglongjmp |
//! | `children` | f fork, F with a grandchild, b _Fork, c clone, v vfork and exec, p posix_spawn, s system, d a daemon |
//! | `cancels` | a thread is cancelled in a wait |
//! | `end`, `code`, `dies` | how it ends, and after how many operations of its first thread (at the end unless told) |
//! | `term` | it handles SIGTERM and SIGINT, and ends with 77 |
//! | `children_die`, `linger` | children may be killed by somebody; they rest so many us after each launch |
//! | `look`, `warn` | it prints how many threads it has; it has a line for stderr |

use crate::random::Draw;

/// Which driver it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Simulated, calls take no time.
    Instant,
    /// Simulated.
    Timed,
    /// Without locks: it may be called from signal handlers, left by longjmp, and used in forked children.
    Odd,
}

/// What the victim does.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The driver.
    pub(crate) driver: Driver,
    /// The plan, without what `lengthened` and the round add.
    pub(crate) plan: String,
    /// Whether it ends with 77 when it is asked to end.
    pub(crate) handles_term: bool,
    /// A child of it goes on when it has ended.
    pub(crate) leaves_daemon: bool,
    /// Launches are left by siglongjmp, or made by signal handlers, inside of whatever the shim just does.
    pub(crate) interrupts: bool,
    /// Operations of a thread in one of its lives, and how many lives come one after the other.
    operations: u64,
    lives: u64,
}

const DRIVERS: [(u64, Driver); 3] = [(50, Driver::Instant), (20, Driver::Timed), (30, Driver::Odd)];
const ENDS: [(u64, &str); 9] = [
    (60, "code"),
    (6, "segv"),
    (6, "abort"),
    (5, "kill"),
    (5, "term"),
    (5, "_exit"),
    (5, "exec"),
    (4, "pthread_exit"),
    (4, "code"),
];

impl Program {
    /// The program of a seed.
    pub(crate) fn of(seed: u64) -> Program {
        let draw = |name: &str| Draw::of(seed, name);
        let driver = draw("driver").weighted(&DRIVERS);
        let odd = driver == Driver::Odd;
        let threads = draw("threads").weighted(&[(3, 0), (3, 1), (3, 2), (3, 4), (1, 8), (1, 16)]);
        let lives = draw("lives").weighted(&[(5, 1), (3, 2), (2, 4), (1, 8)]);
        let kinds = kinds(&mut draw("kinds"), odd);
        // Some operations are a hundred times as dear as others.
        let most = if kinds.contains(['G', 'D', 'W', 'l']) { 4_000 } else { 30_000 };
        let most = (most / ((threads + 1) * lives)).clamp(20, 8_000);
        let operations = draw("operations").between(10, most);
        let hz = draw("hz").weighted(&[(5, 0), (2, 100), (2, 1000), (1, 4000)]);
        let jumps = if odd && draw("jumps").chance(25) { draw("jumps, how many").between(1, 60) } else { 0 };
        let mut of_children = draw("children");
        let children: String = match of_children.weighted(&[(5, 0), (3, 1), (2, 2), (1, 4)]) {
            0 => String::new(),
            many => (0..many).map(|_| of_children.weighted(&CHILDREN)).collect(),
        };
        // The simulated driver has threads of its own, as the vendor's: then a process does not end with its own last one.
        let end = Some(draw("end").weighted(&ENDS)).filter(|end| odd || *end != "pthread_exit").unwrap_or("code");
        let dies = matches!(end, "segv" | "abort" | "kill" | "term" | "_exit") && draw("dies").chance(60);
        let handles_term = draw("term").chance(40);
        let driver_name = match driver {
            Driver::Instant => "instant",
            Driver::Timed => "timed",
            Driver::Odd => "odd",
        };
        let mut plan = format!(
            ",seed={seed},driver={driver_name},route={},threads={threads},lives={lives},operations={operations},kinds={kinds},\
             stack={},hz={hz},handler={},altstack={},jumps={jumps},children={children},cancels={},end={end},code={},term={},warn={}",
            draw("route").one_of(&["dlsym", "procaddr"]),
            draw("stack").weighted(&[(1, 64), (1, 96), (2, 256), (1, 1024)]),
            u8::from(draw("handler").chance(60)),
            u8::from(draw("altstack").chance(40)),
            u8::from(draw("cancels").chance(20)),
            draw("code").weighted(&[(6, 0), (1, 1), (1, 42), (1, 125), (1, 255)]),
            u8::from(handles_term),
            u8::from(draw("warn").chance(30)),
        );
        let interrupts = jumps > 0 || odd && hz > 0 && plan.contains(",handler=1,");
        if dies {
            plan += &format!(",dies={}", draw("dies, when").below(operations));
        }
        Program { driver, plan, handles_term, leaves_daemon: children.contains('d'), interrupts, operations, lives }
    }

    /// The plan with a rest now and then, so that all lives together take about so long.
    pub(crate) fn lengthened(&self, ms: u64) -> String {
        if ms == 0 {
            return self.plan.clone();
        }
        let every = (self.operations / 40).max(1);
        let pauses = (self.operations / every).max(1);
        format!("{},every={every},pause={}", self.plan, (ms * 1000 / pauses / self.lives).max(1))
    }
}

const CHILDREN: [(u64, char); 8] = [(4, 'f'), (2, 'F'), (2, 'b'), (2, 'c'), (3, 'v'), (3, 'p'), (2, 's'), (1, 'd')];

/// Letters, each as often as it is to be drawn.
fn kinds(draw: &mut Draw, odd: bool) -> String {
    let all: &[char] =
        if odd { &['L', 'H', 'X', 'D', 'R', 'W'] } else { &['L', 'l', 'C', 'S', 'G', 'M', 'H', 'X', 'D', 'R', 'W'] };
    let chosen: String =
        all.iter().filter(|_| draw.chance(45)).flat_map(|kind| vec![*kind; 1 + draw_repeat(kind)]).collect();
    if chosen.is_empty() { "LLH".to_owned() } else { chosen }
}

/// What programs do most is drawn more often.
fn draw_repeat(kind: &char) -> usize {
    match kind {
        'L' | 'H' | 'X' => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_program_and_others_are_others() {
        assert_eq!(Program::of(5).plan, Program::of(5).plan);
        let plans: std::collections::BTreeSet<_> = (0..100).map(|seed| Program::of(seed).plan).collect();
        assert_eq!(plans.len(), 100);
    }

    #[test]
    fn each_kind_of_driver_child_and_end_is_drawn() {
        let all: Vec<Program> = (0..2000).map(Program::of).collect();
        for driver in [Driver::Instant, Driver::Timed, Driver::Odd] {
            assert!(all.iter().any(|program| program.driver == driver), "{driver:?}");
        }
        let value = |program: &Program, key: &str| {
            let rest = program.plan.split(&format!(",{key}=")).nth(1).unwrap_or_default().to_owned();
            rest.split(',').next().unwrap_or_default().to_owned()
        };
        for (_, child) in CHILDREN {
            assert!(all.iter().any(|program| value(program, "children").contains(child)), "{child}");
        }
        for (_, end) in ENDS {
            assert!(all.iter().any(|program| value(program, "end") == end), "{end}");
        }
    }

    #[test]
    fn what_only_the_odd_driver_bears_is_asked_of_no_other() {
        for program in (0..500).map(Program::of).filter(|program| program.driver != Driver::Odd) {
            assert!(program.plan.contains(",jumps=0,"), "{}", program.plan);
        }
    }
}
