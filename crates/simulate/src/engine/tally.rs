//! The counts of one station: areas under the numbers present and in service, and sums over visits.

/// Larger numbers present are counted as this one.
const PRESENT_COUNTED: usize = 1 << 16;

/// Counts of a station since the last reset.
#[derive(Clone, Debug)]
pub(crate) struct StationTally {
    /// By class.
    pub(crate) cells: Vec<Cell>,
    /// Seconds during which n were present.
    pub(crate) present_s: Vec<f64>,
    present: usize,
    changed_s: f64,
    /// At a station with processor sharing, busy seconds of its servers per request; unused elsewhere.
    shared_s: f64,
    is_shared: bool,
}

/// Counts of a class at a station.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    present: f64,
    serving: f64,
    changed_s: f64,
    changed_busy_s: f64,
    /// Areas under the number present and the number in service.
    pub(crate) present_s: f64,
    pub(crate) serving_s: f64,
    /// Visits that have ended.
    pub(crate) visits: u64,
    pub(crate) response_s: f64,
    pub(crate) waited_s: f64,
}

impl Cell {
    #[inline]
    fn touch(&mut self, now_s: f64, busy_s: f64) {
        // The second and third change of one event arrive here, with nothing to add.
        if self.changed_s == now_s && self.changed_busy_s == busy_s {
            return;
        }
        self.present_s += self.present * (now_s - self.changed_s);
        self.serving_s += self.serving * (busy_s - self.changed_busy_s);
        self.changed_s = now_s;
        self.changed_busy_s = busy_s;
    }
}

impl StationTally {
    pub(crate) fn new(classes: usize, is_shared: bool) -> StationTally {
        StationTally {
            cells: vec![Cell::default(); classes],
            present_s: vec![0.0; 16],
            present: 0,
            changed_s: 0.0,
            shared_s: 0.0,
            is_shared,
        }
    }

    #[inline]
    fn touch(&mut self, now_s: f64) {
        self.present_s[self.present] += now_s - self.changed_s;
        self.changed_s = now_s;
    }

    #[inline]
    fn busy_s(&self, now_s: f64) -> f64 {
        if self.is_shared { self.shared_s } else { now_s }
    }

    /// Adds an arrival.
    #[inline]
    pub(crate) fn arrive(&mut self, class: u32, now_s: f64, present: u32) {
        self.touch(now_s);
        self.present = (present as usize).min(PRESENT_COUNTED);
        if self.present >= self.present_s.len() {
            self.present_s.resize(2 * self.present, 0.0);
        }
        let busy_s = self.busy_s(now_s);
        let cell = &mut self.cells[class as usize];
        cell.touch(now_s, busy_s);
        cell.present += 1.0;
    }

    /// Removes a departure, and counts its visit.
    #[inline]
    pub(crate) fn leave(&mut self, class: u32, now_s: f64, present: u32, response_s: f64, waited_s: f64) {
        self.touch(now_s);
        self.present = (present as usize).min(PRESENT_COUNTED);
        let busy_s = self.busy_s(now_s);
        let cell = &mut self.cells[class as usize];
        cell.touch(now_s, busy_s);
        cell.present -= 1.0;
        cell.visits += 1;
        cell.response_s += response_s;
        cell.waited_s += waited_s;
    }

    /// A server becomes busy with this class, or idle.
    #[inline]
    pub(crate) fn serve(&mut self, class: u32, now_s: f64, change: f64) {
        let busy_s = self.busy_s(now_s);
        let cell = &mut self.cells[class as usize];
        cell.touch(now_s, busy_s);
        cell.serving += change;
    }

    /// Advances the time at a station with processor sharing.
    #[inline]
    pub(crate) fn share(&mut self, busy_s: f64) {
        self.shared_s += busy_s;
    }

    /// Adds the areas since the last change.
    pub(crate) fn advance_to(&mut self, now_s: f64) {
        self.touch(now_s);
        let busy_s = self.busy_s(now_s);
        self.cells.iter_mut().for_each(|cell| cell.touch(now_s, busy_s));
    }

    /// Restarts the counts.
    pub(crate) fn reset(&mut self, now_s: f64) {
        self.advance_to(now_s);
        self.present_s.fill(0.0);
        for cell in &mut self.cells {
            let Cell { present, serving, changed_s, changed_busy_s, .. } = *cell;
            *cell = Cell { present, serving, changed_s, changed_busy_s, ..Cell::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_those_under_the_steps() {
        let mut tally = StationTally::new(1, false);
        tally.arrive(0, 1.0, 1);
        tally.serve(0, 1.0, 1.0);
        tally.arrive(0, 2.0, 2);
        tally.leave(0, 4.0, 1, 3.0, 0.0);
        tally.advance_to(10.0);
        let cell = tally.cells[0];
        assert_eq!((cell.present_s, cell.serving_s, cell.visits), (1.0 + 4.0 + 6.0, 9.0, 1));
        assert_eq!(tally.present_s[..3], [1.0, 7.0, 2.0]);
        tally.reset(10.0);
        tally.advance_to(11.0);
        assert_eq!((tally.cells[0].present_s, tally.cells[0].visits), (1.0, 0));
    }
}
