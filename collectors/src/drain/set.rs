//! What of a session is set while it runs (`gputrace set`): all that was asked for, or nothing of it.

use super::Drain;
use crate::control::{Client, Setting};
use crate::detail::{Refused, Stage, Triggers};
use crate::writer::{Limits, Message};

/// How the manifest's notes on it begin, and how many there are at most.
const NOTE: &str = "gputrace set";
const MOST_NOTES: usize = 100;

impl Drain {
    /// Sets what was asked for, and answers.
    pub(super) fn set(&mut self, settings: &[Setting], client: Client) {
        let (mut limits, mut hang_after) = (self.config.limits(), self.hangs.after());
        let old = self.stage.as_ref().and_then(Stage::triggers);
        let mut also = old;
        for setting in settings {
            let of_triggers = also.as_mut();
            let set = match *setting {
                Setting::DumpGpuIdle(Some(_)) if self.sampler.is_none() => {
                    return client.answer(Err("NVML says whether a GPU idles, and this session reads no counters"));
                }
                Setting::DumpGpuIdle(idle) => of_triggers.map(|also| also.gpu_idle = idle),
                Setting::DumpNewKernel(settled) => of_triggers.map(|also| also.new_kernel = settled),
                Setting::DumpSlow(times) => of_triggers.map(|also| also.slow = times),
                Setting::DumpSlowStep(times) => of_triggers.map(|also| also.slow_step = times),
                Setting::HangAfter(after) => {
                    hang_after = after;
                    Some(())
                }
                Setting::KeepDetail(age) => {
                    limits.keep_detail = age;
                    Some(())
                }
                Setting::MaxAge(age) => {
                    limits.max_age = age;
                    Some(())
                }
                Setting::MaxSize(bytes) => {
                    limits.max_size = bytes;
                    Some(())
                }
            };
            if set.is_none() {
                return client.answer(Err(Refused::NoRecorder.text()));
            }
        }
        if let Some(why) = self.contradicts(limits) {
            return client.answer(Err(why));
        }
        self.hangs.watch_from(hang_after);
        if also != old {
            self.set_triggers(also.unwrap_or_default());
        }
        if limits != self.config.limits() {
            (self.config.max_size, self.config.max_age) = (limits.max_size, limits.max_age);
            self.config.keep_detail = limits.keep_detail;
            self.unsent.push(Message::Limits(limits));
        }
        self.note_settings(settings);
        client.answer(Ok(&self.trace().display().to_string()));
    }

    fn set_triggers(&mut self, also: Triggers) {
        if let Some(stage) = &mut self.stage {
            stage.set_triggers(also);
        }
    }

    /// Why limits cannot stand beside each other, or beside what the session began with.
    fn contradicts(&self, limits: Limits) -> Option<&'static str> {
        let keep = limits.keep_detail?;
        if self.config.rollup.is_none() {
            return Some("keep-detail leaves the sums of what it removes, and this session makes none (--rollup off)");
        }
        limits.max_age.filter(|age| *age <= keep).map(|_| "max-age removes detail as well: keep-detail must be shorter")
    }

    /// A reader must know that what the command line said was not all.
    fn note_settings(&mut self, settings: &[Setting]) {
        self.changed = true;
        if self.manifest.notes.iter().filter(|note| note.starts_with(NOTE)).count() < MOST_NOTES {
            let after_s = (self.clocks.now_ns() - self.manifest.started_ns) as f64 / 1e9;
            let words: Vec<String> = settings.iter().map(Setting::to_string).collect();
            self.manifest.note(&format!("{NOTE} {} after {after_s:.1} s", words.join(" ")));
        }
    }
}
