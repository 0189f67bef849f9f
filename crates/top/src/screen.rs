//! The view in a terminal: keys, signals, and the terminal as it was when the view ends.

use crate::column::Mode;
use crate::keys::{Key, take_keys};
use crate::lines::Theme;
use crate::view::View;
use crate::watch::{Settings, State, Watch};
use clock::{Clock, Nanos};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest wait for a key before the next look at signals and new figures.
const KEY_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The time after which the view is drawn although nothing has happened, because it shows how long a target is silent.
const REDRAW: Duration = Duration::from_secs(1);
const PAGE_LINES: usize = 10;

/// A terminal that shows the view until this is dropped. The inner terminal never is: it would report on standard error that it cannot
/// show the cursor of a terminal that is gone, and writing to standard error, which is that terminal, ends the program by a panic.
struct Screen(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

impl Screen {
    fn open() -> io::Result<Screen> {
        // A panic ends the program without a drop in release builds.
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
        enable_raw_mode()?;
        // From here on, an error restores the terminal.
        Screen::enter().inspect_err(|_| restore())
    }

    /// Shows an empty screen.
    fn enter() -> io::Result<Screen> {
        execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        Terminal::new(CrosstermBackend::new(stdout())).map(|terminal| Screen(ManuallyDrop::new(terminal)))
    }

    /// Stops the process as the shell expects it, with the terminal as it was. Returns when another process continues it.
    fn stop() -> io::Result<()> {
        restore();
        emulate_default_handler(SIGTSTP)
    }

    /// Takes the terminal again after a stop. A shell has set its own modes meanwhile, and its output is on the screen.
    fn take_back(&mut self) -> io::Result<()> {
        // Without this, raw mode would count as set if another signal than SIGTSTP has stopped the process.
        disable_raw_mode()?;
        enable_raw_mode()?;
        // A new screen is drawn as a whole. The old one is not dropped: `Drop` would restore the terminal.
        std::mem::forget(std::mem::replace(self, Screen::enter()?));
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Leaves the terminal as it was. The terminal may be gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

/// Shows the targets until a key or a signal ends the view, or the terminal goes away.
pub(crate) fn show(settings: &Settings, mode: Mode, has_colours: bool) -> io::Result<()> {
    let [is_ended, is_resized, is_stopped, is_continued] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // The second signal ends the program at once, should a terminal accept no output.
        flag::register_conditional_shutdown(signal, 1, is_ended.clone())?;
        flag::register(signal, is_ended.clone())?;
    }
    for (signal, is_there) in [(SIGWINCH, &is_resized), (SIGTSTP, &is_stopped), (SIGCONT, &is_continued)] {
        flag::register(signal, is_there.clone())?;
    }
    let clock = Clock::monotonic();
    let watch = Watch::start(settings, &clock)?;
    let mut states = State::all(settings, clock.now());
    let mut view = View { mode, theme: Theme { has_colours }, first_column: 0, first_line: 0 };
    let mut screen = Screen::open()?;
    let (mut next_draw, mut bytes) = (Nanos::UNSET, Vec::new());
    while !is_ended.load(Ordering::Relaxed) {
        if is_stopped.swap(false, Ordering::Relaxed) {
            Screen::stop()?;
        }
        if is_continued.swap(false, Ordering::Relaxed) {
            screen.take_back()?;
            next_draw = Nanos::UNSET;
        }
        while let Some(outcome) = watch.next(Duration::ZERO) {
            State::take(&mut states, outcome);
            next_draw = Nanos::UNSET;
        }
        let now = clock.now();
        if is_resized.swap(false, Ordering::Relaxed) || now >= next_draw {
            State::check(&mut states, now);
            screen.0.draw(|frame| view.draw(&states, now, frame.area(), frame.buffer_mut()))?;
            next_draw = now + REDRAW;
        }
        if !read_keys(&mut bytes)? {
            return Ok(());
        }
        for key in take_keys(&mut bytes) {
            next_draw = Nanos::UNSET;
            if key == Key::Stop {
                is_stopped.store(true, Ordering::Relaxed);
            }
            if !press(&mut view, key) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits for bytes of keys and adds them. Returns whether the terminal is still there.
fn read_keys(bytes: &mut Vec<u8>) -> io::Result<bool> {
    let input = stdin();
    let mut ready = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut ready, Some(&KEY_WAIT)) {
        // Nothing follows an escape key that was pressed alone.
        Ok(0) => bytes.clear(),
        Ok(_) if ready[0].revents() != PollFlags::IN => return Ok(false),
        Ok(_) => {
            let mut some = [0; 1024];
            match read(&input, &mut some) {
                Ok(0) => return Ok(false),
                Ok(count) => bytes.extend_from_slice(&some[..count]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A signal.
        Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Changes the view. Returns whether it goes on.
fn press(view: &mut View, key: Key) -> bool {
    let line = &mut view.first_line;
    match key {
        Key::End => return false,
        Key::Stop => {}
        Key::Switch => {
            view.mode = if view.mode == Mode::Apart { Mode::Sum } else { Mode::Apart };
            (view.first_column, view.first_line) = (0, 0);
        }
        Key::Up => *line = line.saturating_sub(1),
        Key::Down => *line += 1,
        Key::PageUp => *line = line.saturating_sub(PAGE_LINES),
        Key::PageDown => *line += PAGE_LINES,
        Key::Home => *line = 0,
        Key::Left => view.first_column = view.first_column.saturating_sub(1),
        Key::Right => view.first_column += 1,
    }
    true
}
