//! Names of analyses on the command line, as shells complete them; what other tools call them is understood as well, and not offered.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

use crate::analysis;

/// Takes any word, and offers the names of all analyses, and these.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) &'static [&'static str]);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = self.0.iter().copied().chain(analysis::ALL.iter().map(|analysis| analysis.name()));
        Some(Box::new(names.map(PossibleValue::new)))
    }
}
