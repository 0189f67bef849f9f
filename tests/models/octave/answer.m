% Answers of GNU Octave's package queueing: one process for all models, JSON in, JSON out.
% Run by make_answers.py as: octave-cli answer.m INPUT OUTPUT. Knows nothing of waylab.
1;

function value = as_matrix(argument)
  % A list of rows comes as a matrix; an object with sizes is an array of more dimensions.
  if isstruct(argument)
    value = reshape(argument.values, argument.sizes(:)');
  else
    value = argument;
  endif
endfunction

function answer = answer_of(model)
  given = cellfun(@as_matrix, struct2cell(model.given), "UniformOutput", false);
  outputs = cell(1, model.outputs);
  answer = struct();
  try
    [outputs{:}] = feval(model.name, given{:});
    for index = 1:model.outputs
      answer.(sprintf("o%d", index)) = sprintf("%.11g ", outputs{index}');
    endfor
  catch problem
    answer.error = problem.message;
  end_try_catch
endfunction

pkg load queueing
warning("off", "all");
paths = argv();
models = jsondecode(fileread(paths{1}));
if isstruct(models)
  models = num2cell(models);
endif
answers = cell(1, numel(models));
for index = 1:numel(models)
  answers{index} = answer_of(models{index});
endfor
file = fopen(paths{2}, "w");
fputs(file, jsonencode(answers));
fclose(file);
