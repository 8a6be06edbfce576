//! Small numbers for the few texts of a column, so that keys are small and quickly compared.

use rustc_hash::FxHashMap;

/// There are some tens of texts; a damaged file may hold more, which count as no text.
const MOST: usize = 1000;

/// Texts and their numbers; 0 is no text.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    texts: Vec<String>,
    numbers: FxHashMap<String, u16>,
}

impl Texts {
    /// The text with this number.
    pub(crate) fn text(&self, number: u16) -> &str {
        let index = usize::from(number).checked_sub(1);
        index.and_then(|index| self.texts.get(index)).map_or("", String::as_str)
    }

    /// The number of a text, the same every time.
    #[inline]
    pub(crate) fn number(&mut self, text: &str) -> u16 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.texts.len() >= MOST {
            return 0;
        }
        self.texts.push(text.to_owned());
        let number = self.texts.len() as u16;
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_and_a_flood_of_them_takes_bounded_memory() {
        let mut texts = Texts::default();
        let numbers = ["HtoD", "", "DtoH", "HtoD"].map(|text| texts.number(text));
        assert_eq!(numbers, [1, 0, 2, 1]);
        assert_eq!(numbers.map(|number| texts.text(number)), ["HtoD", "", "DtoH", "HtoD"]);
        for n in 0..10_000 {
            texts.number(&n.to_string());
        }
        assert_eq!((texts.texts.len(), texts.number("more"), texts.number("DtoH")), (MOST, 0, 2));
    }
}
