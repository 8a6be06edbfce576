//! Loops, and what is found of them.

use super::*;

/// Adds events to a sequence, one call each.
#[derive(Default)]
struct Calls(Sequence, u32);

impl Calls {
    fn launch(&mut self, name: i64) {
        self.0.add(Name::Launch(name), self.1);
        self.1 = self.1.wrapping_add(1);
    }

    fn wait(&mut self) {
        self.0.add(Name::Wait(1), self.1);
        self.1 = self.1.wrapping_add(1);
    }

    fn layers(&mut self, times: i64) {
        for _ in 0..times {
            (10..22).for_each(|name| self.launch(name));
        }
    }
}

fn found(calls: &Calls) -> (u64, f64) {
    calls.0.period().map_or((0, 0.0), |p| (p.count, p.calls))
}

#[test]
fn equal_layers_make_one_step() {
    let mut calls = Calls(Sequence::default(), u32::MAX - 1000);
    for _ in 0..50 {
        (100..103).for_each(|name| calls.launch(name));
        calls.layers(32);
        (200..203).for_each(|name| calls.launch(name));
    }
    assert_eq!(found(&calls), (50, 390.0));
}

#[test]
fn a_wait_ends_the_step() {
    let mut calls = Calls::default();
    for _ in 0..20 {
        (0..100).for_each(|_| calls.launch(7));
        calls.wait();
    }
    assert_eq!(calls.0.period().map(|p| (p.anchor, p.count)), Some((Name::Wait(1), 20)));
}

#[test]
fn a_wait_ends_the_step_when_a_few_kernels_repeat_without_end() {
    let mut calls = Calls::default();
    for _ in 0..60 {
        (0..955).for_each(|i| calls.launch(i % 7));
        calls.wait();
    }
    assert_eq!(found(&calls), (60, 956.0));
}

#[test]
fn unequal_parts_of_a_pattern_are_no_steps() {
    let mut calls = Calls::default();
    for _ in 0..200 {
        for part in [300, 320, 337] {
            calls.launch(1);
            (0..part).for_each(|i| calls.launch(100 + part * 1000 + i));
        }
    }
    assert_eq!(found(&calls), (200, 960.0));
}

#[test]
fn a_log_line_every_hundred_steps_is_no_step() {
    let mut calls = Calls::default();
    for step in 0..2000 {
        (0..50).for_each(|name| calls.launch(name));
        if step % 100 == 0 {
            calls.launch(900);
            calls.wait();
        }
    }
    assert_eq!(found(&calls).0, 2000);
}

#[test]
fn an_optimizer_after_four_micro_steps_ends_the_step() {
    let mut calls = Calls::default();
    for _ in 0..30 {
        (0..4).for_each(|_| (0..50).for_each(|name| calls.launch(name)));
        (300..320).for_each(|name| calls.launch(name));
    }
    assert_eq!(found(&calls), (30, 220.0));
}

#[test]
fn steps_that_differ_a_little_are_steps() {
    let mut calls = Calls::default();
    for step in 0..100i64 {
        calls.launch(1);
        calls.layers(5 + (step * 7919 % 13) / 12);
        calls.launch(2);
        (0..step * 31 % 4).for_each(|_| calls.launch(3));
    }
    assert_eq!(found(&calls).0, 100);
}

#[test]
fn a_collective_that_recurs_while_all_other_work_lies_elsewhere_is_no_step() {
    let mut calls = Calls::default();
    for _ in 0..2 {
        (100..129).for_each(|name| calls.launch(name));
        // The numbers of an import count calls that have no rows.
        (0..6).for_each(|_| {
            calls.launch(7);
            calls.1 += 39;
        });
    }
    assert_eq!(calls.0.period(), None);
    // The same twelve with nothing but themselves are a loop.
    let mut alone = Calls::default();
    (0..12).for_each(|_| {
        alone.launch(7);
        alone.1 += 39;
    });
    assert_eq!(found(&alone), (12, 40.0));
}

#[test]
fn replays_of_a_graph_are_steps_and_not_the_layers_that_were_tried_before() {
    let mut calls = Calls::default();
    calls.layers(40);
    for _ in 0..200 {
        calls.0.add_graph(900, calls.1);
        calls.1 += 1;
    }
    assert_eq!(calls.0.period().map(|p| (p.anchor, p.count)), Some((Name::Launch(900), 200)));
    // A few replays beside steps that are made without a graph.
    let mut eager = Calls::default();
    for _ in 0..12 {
        eager.0.add_graph(900, eager.1);
        eager.1 += 1;
    }
    eager.layers(40);
    assert_eq!(found(&eager).0, 40);
}

#[test]
fn the_order_of_tables_does_not_matter() {
    let mut calls = Calls(Sequence::default(), 2_000);
    calls.wait();
    calls.1 = 0;
    (0..100).for_each(|_| (0..20).for_each(|name| calls.launch(name)));
    assert_eq!((found(&calls), calls.0.calls()), ((100, 20.0), 2_001));
}

#[test]
fn calls_without_order_make_no_steps() {
    let mut calls = Calls::default();
    let mut seed = 1u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        calls.launch((seed >> 33) as i64 % 20);
    }
    assert_eq!(calls.0.period(), None);
    let mut same = Calls::default();
    (0..1000).for_each(|_| same.launch(1));
    assert_eq!(same.0.period(), None, "one kernel again and again has no steps");
    assert_eq!(Sequence::default().period(), None);
}
