"""The page about imports: its commands run, on made-up results of memtier_benchmark."""

from console import Session, steps
from foreign_files import write_memtier
from programs import ROOT


def test_the_commands_of_the_page_run(tmp_path):
    found = steps((ROOT / "docs/import.md").read_text())
    assert len(found) >= 5
    write_memtier(tmp_path / "redis-7.2", blocks=2, seed=1000)
    write_memtier(tmp_path / "redis-7.4", speed=1.1, blocks=2, seed=2000)
    session = Session(tmp_path)
    try:
        for step in found:
            session.run(step)
    finally:
        session.close()
    assert (tmp_path / "both/report.html").is_file()
