def write_report(d): return d
def show_run(d,c): pass
